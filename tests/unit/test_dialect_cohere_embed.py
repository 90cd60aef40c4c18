import base64
import json

import cohere
import httpx
import numpy as np
import pytest
from answering import EMBEDDER, JSON, answer, compute, header, vector

from shoal.dialects import all_dialects
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item, Output
from shoal.tasks.dtypes import cast

DIALECT = all_dialects()["cohere_embed"]
TEXTS = ["one", "two two", "three three three"]
PURPOSES = Facts(
    tasks=("encode",),
    family="nomic",
    files="safetensors",
    max_tokens=16,
    dims=12,
    prompts={"query": "q: ", "document": "d: ", "clustering": "c: "},
    default_prompt="document",
)


def post(body: object, route: str = "embed_v2", content_type: str = JSON, **more: object):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return answer("cohere_embed", route, data, content_type=content_type, **more)


def asked(body: object, **more: object) -> list[Item]:
    seen: list[Item] = []

    def note(item: Item) -> Output:
        seen.append(item)
        return compute(item)

    assert post(body, compute=note, **more).status == 200
    return seen


@pytest.fixture
def transport():
    """Hands the real clients' requests to the dialect and its replies back."""

    def serve(request: httpx.Request) -> httpx.Response:
        (route,) = (each.name for each in DIALECT.routes if each.path == request.url.path)
        reply = answer("cohere_embed", route, request.read(), content_type=request.headers["content-type"])
        return httpx.Response(reply.status, headers=list(reply.headers), content=reply.body)

    with httpx.Client(transport=httpx.MockTransport(serve)) as client:
        yield client


@pytest.fixture
def second(transport):
    return cohere.ClientV2(api_key="k", base_url="http://shoal", httpx_client=transport)


def test_the_second_client_reads_every_type_it_asks_for_and_no_other(second):
    types = ["float", "int8", "uint8", "binary", "ubinary", "base64"]
    got = second.embed(model="org/m", texts=TEXTS, input_type="classification", embedding_types=types)
    rows = np.stack([vector(text) for text in TEXTS])
    found = got.embeddings
    assert np.array_equal(np.array(found.float_, np.float32), rows)
    for name in ("int8", "uint8", "ubinary"):
        assert getattr(found, name) == cast(rows, name).tolist()
    assert (np.array(found.binary) + 128).tolist() == found.ubinary
    assert [np.frombuffer(base64.b64decode(each), "<f4").tolist() for each in found.base64] == rows.tolist()
    assert (got.texts, got.meta.billed_units.input_tokens, got.meta.api_version.version) == (TEXTS, 12, "2")
    only = second.embed(
        model="org/m", texts=TEXTS, input_type="classification", embedding_types=["int8"]
    ).embeddings
    assert only.float_ is None


def test_without_types_the_second_client_gets_floats_by_name_and_the_first_plain_ones(second, transport):
    got = second.embed(model="org/m", texts=["one"], input_type="search_query")
    assert np.array_equal(np.array(got.embeddings.float_[0], np.float32), vector("one", prompt="query: "))
    first = cohere.Client(api_key="k", base_url="http://shoal", httpx_client=transport)
    plain = first.embed(model="org/m", texts=["one"], input_type="search_document")
    assert plain.response_type == "embeddings_floats"
    assert np.array_equal(np.array(plain.embeddings[0], np.float32), vector("one", prompt="passage: "))
    by_type = first.embed(model="org/m", texts=["one"], embedding_types=["float", "ubinary"], batching=False)
    assert by_type.embeddings.ubinary == cast(vector("one")[None], "ubinary").tolist()


def test_inputs_hold_texts_as_content(second):
    inputs = [
        {"content": [{"type": "text", "text": "one"}]},
        {"content": [{"type": "text", "text": "two two"}] * 2},
    ]
    got = second.embed(model="org/m", inputs=inputs, input_type="classification")
    assert np.array_equal(np.array(got.embeddings.float_[0], np.float32), vector("one"))
    assert got.texts == ["one", "two two\ntwo two"]


@pytest.mark.parametrize(
    ("input_type", "prompt"),
    [
        ("search_query", "q: "),
        ("search_document", "d: "),
        ("clustering", "c: "),
        ("classification", "d: "),
        (None, "d: "),
    ],
)
def test_the_input_type_chooses_a_prompt_where_the_model_has_one(input_type, prompt):
    (item,) = asked({"texts": ["a"], "input_type": input_type}, facts=PURPOSES)
    assert item.prompt == prompt
    assert asked({"texts": ["a"], "input_type": "clustering"}, facts=EMBEDDER)[0].prompt == ""


def test_width_length_and_truncation_reach_the_item():
    body = {"texts": ["a"], "output_dimension": 4, "max_tokens": 7}
    for said, policy in ((None, "end"), ("END", "end"), ("START", "start"), ("NONE", "error")):
        assert asked(body | {"truncate": said}) == [Item("a", dims=4, max_tokens=7, truncate=policy)]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 400, "texts is missing"),
        ({"texts": []}, 400, "texts is missing"),
        ({"texts": ["a", ""]}, 400, "texts[1]: the text is empty"),
        ({"texts": "abc"}, 400, "texts"),
        ({"texts": ["a"], "images": ["data:image/png;base64,AA=="]}, 400, "images"),
        ({"texts": ["a"], "inputs": [{"content": []}]}, 400, "not both"),
        ({"inputs": [{"content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, 400, "inputs[0]"),
        ({"inputs": [{"content": []}]}, 400, "texts[0]: the text is empty"),
        ({"texts": ["a"], "input_type": "poem"}, 400, "input_type"),
        ({"texts": ["a"], "embedding_types": ["float64"]}, 400, "embedding_types[0]"),
        ({"texts": ["a"], "output_dimension": 5}, 400, "4, 8, 12"),
        ({"texts": ["a"], "max_tokens": 0}, 400, "max_tokens"),
        ({"texts": ["a"], "prompt_name": "poem"}, 400, "passage, query"),
        ({"texts": ["w " * 40], "truncate": "NONE"}, 413, "texts[0]"),
        ({"texts": ["a"], "truncate": "end"}, 400, "truncate"),
    ],
)
def test_bad_requests_are_refused_and_say_what_is_wrong(body, status, words):
    reply = post(body)
    assert reply.status == status
    assert words in json.loads(reply.body)["message"]


def test_a_width_that_was_not_trained_for_is_the_clients_own_error(second):
    with pytest.raises(cohere.BadRequestError) as refused:
        second.embed(model="org/m", texts=["a"], input_type="clustering", output_dimension=5)
    assert "trained for" in refused.value.body["message"]


def test_truncation_is_in_the_header_and_only_json_is_read():
    assert header(post({"texts": ["a", "w " * 40]}), "x-shoal-truncated") == "1"
    assert post({"texts": ["a"]}, content_type="application/msgpack").status == 415


def test_peek_reads_the_model():
    for route in DIALECT.routes:
        assert DIALECT.peek(route.name, b'{"texts": 3, "model": "org/m"}') == "org/m"
