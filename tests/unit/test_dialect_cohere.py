import json
import math

import cohere
import httpx
import pytest
from answering import JSON, answer, compute, header

from shoal.dialects import all_dialects
from shoal.protocol.errors import ModelNotFound, QueueFull
from shoal.protocol.items import Item

DIALECT = all_dialects()["cohere"]
DOCUMENTS = ["one", "two two", "three three three", "four"]


def post(body: object, route: str = "rerank_v2", content_type: str = JSON, **more: object):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return answer("cohere", route, data, content_type=content_type, **more)


def said(reply) -> dict:
    return json.loads(reply.body)


def logit(document: str) -> float:
    return compute(Item("q", pair=document)).tensors["score"].numpy().item()


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


BEST_FIRST = sorted(range(len(DOCUMENTS)), key=lambda i: -logit(DOCUMENTS[i]))


@pytest.fixture
def transport():
    """Hands the real clients' requests to the dialect and its replies back."""

    def serve(request: httpx.Request) -> httpx.Response:
        (route,) = (each.name for each in DIALECT.routes if each.path == request.url.path)
        reply = answer("cohere", route, request.read(), content_type=request.headers["content-type"])
        return httpx.Response(reply.status, headers=list(reply.headers), content=reply.body)

    with httpx.Client(transport=httpx.MockTransport(serve)) as client:
        yield client


@pytest.mark.parametrize(("kind", "version"), [(cohere.Client, "1"), (cohere.ClientV2, "2")])
def test_both_cohere_clients_read_our_ranking(transport, kind, version):
    client = kind(api_key="k", base_url="http://shoal", httpx_client=transport)
    got = client.rerank(model="org/m", query="q", documents=DOCUMENTS, top_n=3)
    assert [each.index for each in got.results] == BEST_FIRST[:3]
    for each in got.results:
        assert each.relevance_score == pytest.approx(sigmoid(logit(DOCUMENTS[each.index])), abs=1e-12)
    assert (got.id, got.meta.billed_units.search_units, got.meta.api_version.version) == ("r-1", 1, version)


def test_the_cohere_client_gets_documents_back_where_it_asks(transport):
    client = cohere.Client(api_key="k", base_url="http://shoal", httpx_client=transport)
    given = [{"text": text, "title": "t"} for text in DOCUMENTS]
    got = client.rerank(query="q", documents=given, return_documents=True)
    assert [each.document.text for each in got.results] == [DOCUMENTS[i] for i in BEST_FIRST]


def test_the_cohere_client_raises_its_own_errors_with_our_words(transport):
    client = cohere.ClientV2(api_key="k", base_url="http://shoal", httpx_client=transport)
    with pytest.raises(cohere.BadRequestError) as caught:
        client.rerank(model="org/m", query="q", documents=["fine", ""])
    assert caught.value.body["message"].startswith("documents[1]: the text is empty")
    assert caught.value.body["code"] == "EMPTY_INPUT"


@pytest.mark.parametrize(("top_n", "count"), [(None, 4), (1, 1), (4, 4), (99, 4)])
def test_top_n_is_honoured_and_without_it_all_come_back(top_n, count):
    for body in (
        {"query": "q", "documents": DOCUMENTS, "top_n": top_n},
        {"query": "q", "documents": DOCUMENTS},
    ):
        results = said(post(body))["results"]
        assert [each["index"] for each in results] == BEST_FIRST[: count if "top_n" in body else None]


@pytest.mark.parametrize("top_n", [0, -1, 1.5, "2", True, [1]])
def test_a_top_n_that_is_no_count_is_refused(top_n):
    reply = post({"query": "q", "documents": DOCUMENTS, "top_n": top_n})
    assert reply.status == 400
    assert "top_n" in said(reply)["message"]


def test_raw_scores_are_logits():
    results = said(post({"query": "q", "documents": DOCUMENTS, "raw_scores": True}))["results"]
    assert [each["relevance_score"] for each in results] == [logit(DOCUMENTS[i]) for i in BEST_FIRST]


def test_documents_come_back_only_when_asked_for():
    body = {"query": "q", "documents": [{"text": "one", "id": 3}, "two"]}
    assert all("document" not in each for each in said(post(body))["results"])
    results = said(post(body | {"return_documents": True}))["results"]
    assert {each["index"]: each["document"] for each in results} == {0: {"text": "one"}, 1: {"text": "two"}}


@pytest.mark.parametrize("route", ["rerank_v1", "rerank_v2", "rerank"])
def test_all_three_paths_answer_alike(route):
    body = said(post({"model": "org/m", "query": "q", "documents": DOCUMENTS}, route=route))
    assert [each["index"] for each in body["results"]] == BEST_FIRST
    assert body["model"] == "org/m"
    assert body["usage"] == {"total_tokens": 19, "truncated": 0}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"documents": ["a"]}, "query is missing"),
        ({"query": "", "documents": ["a"]}, "query: the text is empty"),
        ({"query": ["q"], "documents": ["a"]}, "query"),
        ({"query": "q"}, "documents is missing"),
        ({"query": "q", "documents": []}, "documents is empty"),
        ({"query": "q", "documents": "abc"}, "documents"),
        ({"query": "q", "documents": [3]}, "documents[0]"),
        ({"query": "q", "documents": ["a", {"title": "t"}]}, "documents[1]"),
        ({"query": "q", "documents": ["a", {"text": 3}]}, "documents[1].text"),
        ({"query": "q", "documents": ["a", " "]}, "documents[1]: the text is empty"),
        ({"query": "q", "texts": ["a"]}, "TEI"),
        ({"query": "q", "documents": ["a"], "rank_fields": ["title"]}, "rank_fields"),
        ({"query": "q", "documents": ["a"], "return_documents": "yes"}, "return_documents"),
        (["q"], "array"),
        (b"", "empty"),
    ],
)
def test_bad_requests_are_400_and_say_what_is_wrong(body, words):
    for route in ("rerank", "rerank_v1", "rerank_v2"):
        reply = post(body, route=route)
        assert reply.status == 400
        assert words in said(reply)["message"]


def test_unknown_fields_are_no_matter():
    body = {
        "query": "q",
        "documents": ["a"],
        "max_tokens_per_doc": 9,
        "priority": 1,
        "x": {"y": []},
        "top_n": None,
    }
    assert post(body).status == 200


def test_truncation_is_reported_and_can_be_an_error():
    body = {"query": "q", "documents": ["a", "w " * 40]}
    reply = post(body)
    assert said(reply)["usage"]["truncated"] == 1
    assert header(reply, "x-shoal-truncated") == "1"
    refused = post(body | {"truncate": "error"})
    assert (refused.status, said(refused)["code"]) == (413, "INPUT_TOO_LONG")
    assert said(refused)["error"]["param"] == "documents[1]"


def test_only_json_is_read():
    assert post({"query": "q", "documents": ["a"]}, content_type="application/msgpack").status == 415


def test_refusals_can_be_read_by_cohere_and_jina_clients():
    reply = DIALECT.refuse(ModelNotFound("no model named x", near="y"))
    assert reply.status == 404
    assert said(reply) == {
        "message": "no model named x",
        "detail": "no model named x",
        "code": "MODEL_NOT_FOUND",
        "error": {"code": "MODEL_NOT_FOUND", "message": "no model named x", "near": "y"},
    }
    assert header(DIALECT.refuse(QueueFull("full")), "retry-after") == "1"


def test_peek_reads_the_model_on_every_path():
    for route in DIALECT.routes:
        assert DIALECT.peek(route.name, b'{"documents": ["a"], "model": "org/m", "query": 3}') == "org/m"
