"""Empty, tiny and strange inputs: one rule for each, neighbours unharmed, the server alive."""

import asyncio

import httpx
import numpy as np
import pytest
from asking import ENCODERS, SCORERS, cosines

from names import BGE, MINILM, RERANKER

pytestmark = [pytest.mark.clients, pytest.mark.models]

NOTHING = ["", " ", "\n\t ", "\u3000", "\0"]


@pytest.mark.parametrize("route", ENCODERS)
@pytest.mark.parametrize("text", NOTHING)
def test_a_text_with_nothing_to_read_is_a_typed_error(http, route, text):
    said = ENCODERS[route](http, text)
    assert (said.status, said.error["code"]) == (400, "EMPTY_INPUT")


@pytest.mark.parametrize("route", SCORERS)
@pytest.mark.parametrize("text", NOTHING)
def test_a_pair_with_nothing_to_read_is_a_typed_error(http, route, text):
    for said in (SCORERS[route](http, "a query", text), SCORERS[route](http, text, "a document")):
        assert (said.status, said.error["code"]) == (400, "EMPTY_INPUT")


@pytest.mark.parametrize("model", [MINILM, BGE])
def test_one_bad_text_on_the_native_route_has_its_error_in_its_place_and_its_neighbours_their_vectors(http, model):
    items = ["one", {"id": "e", "text": ""}, {"id": "p", "images": [{"data": "aGk=", "format": "png"}]}, "two"]
    answer = http.post(f"/v1/encode/{model}", json={"items": items})
    assert answer.status_code == 200
    first, empty, picture, last = answer.json()["items"]
    assert (empty["id"], empty["error"]["code"]) == ("e", "EMPTY_INPUT")
    assert (picture["id"], picture["error"]["code"]) == ("p", "INVALID_INPUT")
    assert "images" in picture["error"]["message"]
    alone = http.post(f"/v1/encode/{model}", json={"items": ["one", "two"]}).json()["items"]
    for got, expected in zip((first, last), alone, strict=True):
        assert cosines(got["dense"]["values"], expected["dense"]["values"]) >= 0.9999


def test_one_bad_document_on_the_native_route_comes_last_with_its_error(http):
    items = [{"id": "none", "text": " "}, {"id": "good", "text": "Paris"}]
    scores = http.post(f"/v1/score/{RERANKER}", json={"query": "capital", "items": items}).json()["scores"]
    assert [(entry["item_id"], entry["rank"]) for entry in scores] == [("good", 0), ("none", 1)]
    assert scores[1]["error"]["code"] == "EMPTY_INPUT"
    assert scores[1]["score"] < scores[0]["score"]
    assert "error" not in scores[0]


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("/v1/embeddings", {"model": MINILM, "input": ["a", "b", "", "c"]}, "input[2]"),
        ("/v1/embeddings", {"model": MINILM, "input": ["a", "dog " * 300], "truncate": "error"}, "input[1]"),
        ("/v1/embeddings", {"model": MINILM, "input": [[5], [5, 40_000]]}, "input[1]"),
        ("/v1/rerank", {"model": RERANKER, "query": "a", "documents": ["a", {"text": ""}]}, "documents[1]"),
        ("/v2/rerank", {"model": RERANKER, "query": "a", "documents": ["\t", "a"]}, "documents[0]"),
    ],
)
def test_where_an_api_cannot_answer_the_neighbours_the_refusal_names_the_input(http, path, body, where):
    answer = http.post(path, json=body)
    assert 400 <= answer.status_code < 500
    error = answer.json()["error"]
    assert error["param"] == where
    assert error["message"].startswith(f"{where}: ")


@pytest.mark.parametrize("path", [f"/v1/encode/{MINILM}", f"/v1/score/{RERANKER}"])
def test_a_bare_string_where_a_list_belongs_is_never_a_list_of_letters(http, path):
    answer = http.post(path, json={"query": "a", "items": "letters"})
    assert (answer.status_code, answer.json()["detail"]["param"]) == (400, "items")


def test_texts_of_one_to_three_tokens_at_once_never_come_back_null(server, ours):
    texts = [text for i in range(40) for text in ("a", f"{i}", "ox", f"go {i}", "no way", f"{i} {i + 1} {i + 2}")]
    expected = dict(zip(texts, ours.encode(MINILM, texts), strict=True))

    async def ask_all() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=64)
        async with httpx.AsyncClient(base_url=server.url, timeout=60, limits=limits) as client:
            bodies = [{"model": MINILM, "input": text} for text in texts]
            return await asyncio.gather(*(client.post("/v1/embeddings", json=body) for body in bodies))

    for text, answer in zip(texts, asyncio.run(ask_all()), strict=True):
        vector = np.array(answer.json()["data"][0]["embedding"], float)
        assert np.isfinite(vector).all()
        assert cosines(vector, expected[text]) >= 0.9999


def test_tiny_pairs_at_once_never_come_back_null(server):
    async def ask_all() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            bodies = [{"model": RERANKER, "query": "a", "documents": ["b", f"{i}"]} for i in range(64)]
            return await asyncio.gather(*(client.post("/v1/rerank", json=body) for body in bodies))

    for answer in asyncio.run(ask_all()):
        scores = [result["relevance_score"] for result in answer.json()["results"]]
        assert len(scores) == 2
        assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    "text", ["🐟", "é" * 50, "\u202eabc", "a\0b", "[CLS] [SEP] [MASK]", "x" * 5000, "，" * 300, "'"]
)
@pytest.mark.parametrize("route", ENCODERS)
def test_strange_texts_have_a_vector_that_is_finite_and_of_length_one(http, route, text):
    said = ENCODERS[route](http, text)
    assert said.status == 200
    assert abs(np.linalg.norm(said.value) - 1) < 1e-3


def test_half_a_surrogate_pair_is_no_text_and_the_body_is_refused(http):
    body = b'{"items": ["good", "\\ud800"]}'
    answer = http.post(f"/v1/encode/{MINILM}", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["detail"]["code"]) == (400, "INVALID_INPUT")
    assert ENCODERS["native json"](http, "still here").status == 200
