import base64
import json

import httpx2
import numpy as np
import openai
import pytest
from answering import JSON, answer, header, vector

from shoal.dialects import all_dialects
from shoal.protocol.errors import InvalidInput, ModelNotFound, QueueFull, RateLimited
from shoal.protocol.items import Item, Output

DIALECT = all_dialects()["openai"]


def post(body: object, content_type: str = JSON, **more: object):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return answer("openai", "embeddings", data, content_type=content_type, **more)


def said(reply) -> dict:
    return json.loads(reply.body)


@pytest.fixture
def client():
    """The real client; its transport hands the request's bytes to the dialect and the reply's bytes back."""

    def serve(request: httpx2.Request) -> httpx2.Response:
        assert request.url.path == "/v1/embeddings"
        reply = answer("openai", "embeddings", request.read(), content_type=request.headers["content-type"])
        return httpx2.Response(reply.status, headers=list(reply.headers), content=reply.body)

    transport = httpx2.Client(transport=httpx2.MockTransport(serve))
    with openai.OpenAI(api_key="k", base_url="http://shoal/v1", max_retries=0, http_client=transport) as made:
        yield made


@pytest.mark.parametrize("how", [{}, {"encoding_format": "float"}, {"encoding_format": "base64"}])
def test_the_openai_client_reads_our_vectors(client, how):
    got = client.embeddings.create(model="org/m", input=["one", "two words"], **how)
    assert [each.index for each in got.data] == [0, 1]
    for each, text in zip(got.data, ["one", "two words"], strict=True):
        values = each.embedding
        if isinstance(values, str):
            values = np.frombuffer(base64.b64decode(values), "<f4")
        assert np.array_equal(np.float32(values), vector(text))
    assert (got.usage.prompt_tokens, got.usage.total_tokens, got.model) == (7, 7, "org/m")


def test_the_openai_client_raises_its_own_errors_with_our_words(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="org/m", input=["fine", ""])
    assert (caught.value.code, caught.value.param) == ("EMPTY_INPUT", "input[1]")
    assert caught.value.type == "invalid_request_error"
    assert "input[1]: the text is empty" in caught.value.message


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("one text", [vector("one text")]),
        (["one text"], [vector("one text")]),
        ([7, 8], [vector("7 8")]),
        ([[7, 8], [9]], [vector("7 8"), vector("9")]),
    ],
)
def test_strings_and_token_ids_alone_and_in_lists(given, expected):
    data = said(post({"model": "org/m", "input": given}))["data"]
    assert [np.float32(each["embedding"]).tolist() for each in data] == [each.tolist() for each in expected]


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["a", 1],
        ["a", [1]],
        [1, [1]],
        [True, False],
        [[True]],
        [[1], [False]],
        [1.5],
        [[1.0]],
        [None],
        {},
        3,
        None,
        [["a"]],
        [[[1]]],
        True,
    ],
)
def test_empty_mixed_and_other_inputs_are_refused(given):
    reply = post({"model": "org/m", "input": given})
    assert reply.status == 400
    assert said(reply)["error"]["code"] == "INVALID_INPUT"


@pytest.mark.parametrize(
    ("given", "param"),
    [("", "input"), ([""], "input[0]"), (["a", "b", " "], "input[2]"), ([[1], []], "input[1]")],
)
def test_one_bad_input_fails_the_request_and_is_named(given, param):
    reply = post({"input": given})
    assert reply.status == 400
    assert said(reply)["error"]["param"] == param
    assert header(reply, "x-sie-error-code") == "EMPTY_INPUT"


def test_a_failure_that_is_ours_keeps_its_status():
    fault = Output(fault=InvalidInput("x").fault())
    crashed = Output(fault=type(fault.fault)("RUNTIME_CRASHED", "died twice"))
    reply = post({"input": ["a"]}, compute=lambda item: crashed)
    assert reply.status == 500
    assert said(reply)["error"] == {
        "type": "server_error",
        "param": "input[0]",
        "code": "RUNTIME_CRASHED",
        "message": "input[0]: died twice",
    }


def test_2048_inputs_pass_and_one_more_names_limit_size_and_setting():
    assert len(said(post({"input": ["a"] * 2048}))["data"]) == 2048
    reply = post({"input": ["a"] * 2049})
    assert reply.status == 400
    for word in ("2049", "2048", "--max-items"):
        assert word in said(reply)["error"]["message"]
    assert post({"input": list(range(3000))}).status == 200


def test_dimensions_reach_the_item_and_untrained_ones_are_refused():
    data = said(post({"input": "a", "dimensions": 4}))["data"]
    assert len(data[0]["embedding"]) == 4
    for dims in (0, -1, 5, 10**30, "4", 4.5, True):
        assert post({"input": "a", "dimensions": dims}).status == 400


@pytest.mark.parametrize(
    ("extra", "prompt"),
    [
        ({"input_type": "query"}, "query: "),
        ({"input_type": "document"}, "passage: "),
        ({"input_type": "passage"}, "passage: "),
        ({"prompt_name": "query"}, "query: "),
        ({}, ""),
    ],
)
def test_input_type_and_prompt_name_choose_the_prompt(extra, prompt):
    (data,) = said(post({"input": "a"} | extra))["data"]
    assert np.float32(data["embedding"]).tolist() == vector("a", prompt=prompt).tolist()


def test_truncation_is_reported_and_can_be_an_error():
    long = "w " * 40
    reply = post({"input": ["short", long]})
    assert said(reply)["usage"] == {"prompt_tokens": 19, "total_tokens": 19, "truncated": 1}
    assert header(reply, "x-shoal-truncated") == "1"
    refused = post({"input": ["short", long], "truncate": "error"})
    assert (refused.status, said(refused)["error"]["code"]) == (413, "INPUT_TOO_LONG")
    assert said(refused)["error"]["param"] == "input[1]"
    assert header(post({"input": "short"}), "x-shoal-truncated") is None


def test_unknown_and_null_fields_are_no_matter():
    body = {"input": "a", "user": "u", "dimensions": None, "encoding_format": None, "x": {"y": [1]}}
    assert post(body).status == 200


@pytest.mark.parametrize("field", ["encoding_format", "input_type", "truncate", "prompt_name"])
def test_unknown_words_in_known_fields_are_refused(field):
    assert post({"input": "a", field: "nonsense"}).status == 400
    assert post({"input": "a", field: ["float"]}).status == 400


def test_only_json_is_read():
    assert post({"input": "a"}, content_type="").status == 200
    assert post({"input": "a"}, content_type="Application/JSON; charset=utf-8").status == 200
    for other in ("application/msgpack", "text/plain", "application/x-www-form-urlencoded"):
        reply = post({"input": "a"}, content_type=other)
        assert reply.status == 415
        assert JSON in said(reply)["error"]["message"]


def test_an_answer_carries_id_version_and_times():
    reply = post({"input": "a"})
    assert header(reply, "content-type") == JSON
    assert header(reply, "x-request-id") == header(reply, "x-sie-request-id") == "r-1"
    assert header(reply, "x-total-time") == "12.500"


def test_peek_finds_the_model_and_nothing_else():
    assert DIALECT.peek("embeddings", b'{"input": ["a", {"model": "no"}], "model": "org/m"}') == "org/m"
    assert DIALECT.peek("embeddings", b'{"input": "a"}') == ""
    assert DIALECT.peek("embeddings", b'{"model": null}') == ""
    for wrong in (b"", b"[]", b'"a"', b'{"model": 3}', b'{"model"', b"\xff", b'{"x":' + b"[" * 99999):
        with pytest.raises(InvalidInput):
            DIALECT.peek("embeddings", wrong)


@pytest.mark.parametrize(
    ("error", "status", "kind", "param", "retry"),
    [
        (ModelNotFound("no model"), 404, "invalid_request_error", "model", None),
        (RateLimited("slow down"), 429, "rate_limit_error", None, "1"),
        (QueueFull("full", limit=3), 503, "server_error", None, "1"),
    ],
)
def test_refusals_have_openais_shape(error, status, kind, param, retry):
    reply = DIALECT.refuse(error)
    assert reply.status == status
    wanted = {"message": error.message, "type": kind, "param": param, "code": error.code} | error.detail
    assert said(reply) == {"error": wanted}
    assert header(reply, "retry-after") == retry


def test_an_item_is_made_for_each_text_without_a_copy_of_it():
    seen: list[Item] = []

    def note(item: Item) -> Output:
        seen.append(item)
        return Output(fault=InvalidInput("stop").fault())

    post({"input": ["nul \0", "🐟"]}, compute=note)
    assert [item.text for item in seen] == ["nul \0", "🐟"]
