"""Reranking over plain HTTP: Jina's shape, and what has to hold for scores on whatever route."""

import numpy as np
import onnxruntime
import pytest
from asking import SCORERS
from tokenizers import Tokenizer

from names import RERANKER
from shoal.catalog.store import Store

pytestmark = [pytest.mark.clients, pytest.mark.models]

QUERY = "What is the capital of France?"
CAPITALS = ["London is the capital of England.", "Paris is the capital of France.", "Bananas are yellow."]
NEAR = ["Paris is the capital of France" + end for end in (".", "!", ",", ";", "..", "?", "…", "", " today", "!!")]


@pytest.fixture
def rerank(http):
    def ask(path: str = "/v1/rerank", **fields) -> dict:
        answer = http.post(path, json={"model": RERANKER, "query": QUERY, "documents": CAPITALS} | fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return ask


@pytest.fixture(scope="module")
def alone(home):
    """The published artifact in its own engine, one pair at a time: what our scores are held against."""
    folder = Store(home).resolve(RERANKER).folder
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()

    def score(query: str, document: str) -> float:
        pair = tokenizer.encode(query, document)
        feed = {"input_ids": pair.ids, "attention_mask": pair.attention_mask, "token_type_ids": pair.type_ids}
        (logits,) = session.run(None, {name: np.array([values]) for name, values in feed.items()})
        return float(logits.reshape(()))

    return score


@pytest.mark.parametrize("route", SCORERS)
def test_a_score_is_that_of_the_artifact_run_alone(http, alone, route):
    for document in CAPITALS:
        said = SCORERS[route](http, QUERY, document)
        assert abs(said.value - alone(QUERY, document)) <= 1e-3


def test_scores_are_the_same_alone_together_and_shuffled_among_long_neighbours(ours, alone):
    documents = [*CAPITALS, *NEAR, *("long and unrelated " * n for n in (3, 40, 120, 200)), "Paris"]
    expected = [alone(QUERY, document) for document in documents]
    order = np.random.default_rng(7).permutation(len(documents))
    together = {ranked.index: ranked.score for ranked in ours.score(RERANKER, QUERY, documents)}
    shuffled = {
        int(order[ranked.index]): ranked.score
        for ranked in ours.score(RERANKER, QUERY, [documents[i] for i in order])
    }
    for i, score in enumerate(expected):
        assert abs(together[i] - score) <= 1e-3
        assert abs(shuffled[i] - score) <= 1e-3


def test_every_reranker_here_puts_paris_above_london_on_each_route(http, home):
    rerankers = [
        model.name
        for model in Store(home).models().values()
        if "score" in model.facts.tasks and not model.facts.labels and model.facts.files != "none"
    ]
    assert RERANKER in rerankers
    for model in rerankers:
        asked = {"model": model, "query": QUERY}
        native = http.post(f"/v1/score/{model}", json={"query": QUERY, "items": CAPITALS}).json()["scores"]
        cohere = http.post("/v2/rerank", json=asked | {"documents": CAPITALS}).json()["results"]
        tei = http.post("/rerank", json=asked | {"texts": CAPITALS}).json()
        for order in (
            [int(e["item_id"][5:]) for e in native],
            [e["index"] for e in cohere],
            [e["index"] for e in tei],
        ):
            assert order == [1, 0, 2], model


def test_near_duplicates_of_a_perfect_answer_do_not_tie_and_keep_the_order_of_their_logits(rerank):
    found = rerank(documents=NEAR)["results"]
    raw = rerank(documents=NEAR, raw_scores=True)["results"]
    logits = [result["relevance_score"] for result in raw]
    scores = [result["relevance_score"] for result in found]
    assert len(set(logits)) == len(set(scores)) == len(NEAR)
    assert min(scores) > 0.99
    assert [result["index"] for result in found] == [result["index"] for result in raw]
    assert np.allclose(np.log(scores) - np.log1p(-np.array(scores)), logits, atol=1e-6)


def test_the_native_route_gives_the_models_own_scores_which_are_logits_here(ours, alone):
    for raw in (True, False):
        (best, *_) = ours.score(RERANKER, QUERY, CAPITALS, raw=raw)
        assert abs(best.score - alone(QUERY, CAPITALS[1])) <= 1e-3


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_documents_are_strings_or_text_objects_mixed_and_come_back_when_asked_for(rerank, path):
    documents = [CAPITALS[0], {"text": CAPITALS[1]}, CAPITALS[2]]
    answer = rerank(path, documents=documents, return_documents=True)
    assert answer["model"] == RERANKER
    results = answer["results"]
    assert [(result["index"], result["document"]["text"]) for result in results] == [
        (i, CAPITALS[i]) for i in (1, 0, 2)
    ]
    for asked in ({"return_documents": False}, {}):
        assert all("document" not in result for result in rerank(path, **asked)["results"])


@pytest.mark.parametrize(("top_n", "kept"), [(1, [1]), (2, [1, 0]), (9, [1, 0, 2]), (None, [1, 0, 2])])
def test_top_n_is_honoured_and_omitted_means_all(rerank, top_n, kept):
    fields = {} if top_n is None else {"top_n": top_n}
    assert [result["index"] for result in rerank(**fields)["results"]] == kept


def test_usage_counts_every_pair_also_those_that_top_n_leaves_out(rerank, tokens_of):
    expected = sum(tokens_of(RERANKER, QUERY, text) for text in CAPITALS)
    assert rerank()["usage"]["total_tokens"] == rerank(top_n=1)["usage"]["total_tokens"] == expected


def test_a_body_without_a_model_gets_the_default_reranker(http):
    answer = http.post("/rerank", json={"query": QUERY, "documents": CAPITALS, "top_n": 1})
    assert answer.json()["model"] == RERANKER
    assert answer.json()["results"][0]["index"] == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"documents": "abc"}, "documents"),
        ({"documents": {"text": "a"}}, "documents"),
        ({"documents": [{"title": "a"}]}, "documents[0]"),
        ({"documents": None, "texts": ["a"]}, "TEI"),
        ({"query": None}, "query is missing"),
        ({"top_n": 0}, "top_n"),
        ({"documents": [{"text": "a", "title": "b"}], "rank_fields": ["title", "text"]}, "rank_fields"),
    ],
)
def test_what_cannot_be_ranked_is_refused_in_words_that_jinas_and_coheres_clients_show(http, fields, words):
    answer = http.post("/v1/rerank", json={"model": RERANKER, "query": QUERY, "documents": CAPITALS} | fields)
    assert answer.status_code == 400
    assert words in answer.json()["message"]
    assert answer.json()["detail"] == answer.json()["message"]
