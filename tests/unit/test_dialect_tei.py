import json
import math

import msgspec
import numpy as np
import pytest
from answering import EMBEDDER, EVERY_KIND, JSON, NLI, answer, compute, header, several_labels, vector

from shoal.dialects import all_dialects
from shoal.gateway import routing
from shoal.protocol.errors import (
    DeadlineExceeded,
    EmptyInput,
    Fault,
    Forbidden,
    InferenceError,
    InputTooLong,
    InvalidInput,
    ModelLoading,
    ModelNotFound,
    NoNode,
    QueueFull,
    Unauthorized,
)
from shoal.protocol.items import Item, Output

DIALECT = all_dialects()["tei"]
TEXTS = ["one", "two two", "three three three", "four"]


def post(body: object, route: str = "embed", content_type: str = JSON, **more: object):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return answer("tei", route, data, content_type=content_type, **more)


def said(body: object, route: str = "embed", **more: object):
    reply = post(body, route, **more)
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


def asked(body: object, route: str = "embed", **more: object) -> list[Item]:
    """The items that a body becomes."""
    seen: list[Item] = []

    def note(item: Item) -> Output:
        seen.append(item)
        return compute(item)

    said(body, route, compute=note, **more)
    return seen


def logit(query: str, document: str) -> float:
    return compute(Item(query, pair=document)).tensors["score"].numpy().item()


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@pytest.mark.parametrize("route", ["embed", "embed_root"])
def test_one_text_or_many_give_a_list_of_normalised_vectors(route):
    assert np.allclose(said({"inputs": "one"}, route), [vector("one", normalize=True)])
    assert np.allclose(said({"inputs": TEXTS}, route), [vector(text, normalize=True) for text in TEXTS])


def test_what_the_body_says_reaches_the_item():
    body = {"inputs": "a", "normalize": False, "prompt_name": "query", "dimensions": 4, "truncate": True}
    assert asked(body) == [Item("a", prompt="query: ", normalize=False, dims=4)]
    assert asked({"inputs": "a", "model": "org/m", "user": 3}) == [Item("a", normalize=True)]


@pytest.mark.parametrize(
    ("fields", "policy"),
    [
        ({}, "end"),
        ({"truncate": True}, "end"),
        ({"truncate": False}, "error"),
        ({"truncate": True, "truncation_direction": "Left"}, "start"),
        ({"truncate": True, "truncation_direction": "right"}, "end"),
        ({"truncation_direction": "left"}, "start"),
        ({"truncate": False, "truncation_direction": "Left"}, "error"),
    ],
)
def test_too_long_a_text_is_cut_unless_truncate_is_false(fields, policy):
    assert asked({"inputs": "a"} | fields)[0].truncate == policy
    assert asked({"query": "q", "texts": ["a"]} | fields, "rerank_tei")[0].truncate == policy
    assert asked({"inputs": [["q", "a"]]} | fields, "predict")[0].truncate == policy
    compared = {"inputs": {"source_sentence": "a", "sentences": ["b"]}, "parameters": fields}
    assert asked(compared, "similarity")[1].truncate == policy


def test_embed_all_gives_a_vector_for_each_token_and_embed_sparse_the_weights():
    every = said({"inputs": ["one two", "three"]}, "embed_all", facts=EVERY_KIND)
    assert [np.shape(each) for each in every] == [(2, 3), (1, 3)]
    (sparse,) = said({"inputs": "one two"}, "embed_sparse", facts=EVERY_KIND)
    dense = vector("one two")
    assert [entry["index"] for entry in sparse] == np.flatnonzero(dense > 0).tolist()
    assert [entry["value"] for entry in sparse] == pytest.approx(dense[dense > 0])
    for route, kind in (("embed_all", "multivector"), ("embed_sparse", "sparse")):
        reply = post({"inputs": "a"}, route, facts=EMBEDDER)
        assert (reply.status, kind in json.loads(reply.body)["error"]) == (413, True)


def test_the_sparse_vector_of_an_empty_text_is_empty():
    assert said({"inputs": ["", "a"]}, "embed_sparse", facts=EVERY_KIND)[0] == []


def test_tokens_have_their_places_and_markers_have_none():
    tokens = [
        {"id": 0, "text": "[CLS]", "special": True, "start": None, "stop": None},
        {"id": 1, "text": "one", "special": False, "start": 1, "stop": 4},
        {"id": 2, "text": "[SEP]", "special": True, "start": None, "stop": None},
    ]
    assert said({"inputs": " one"}, "tokenize") == [tokens]
    both = {"inputs": [" one", ""], "add_special_tokens": False, "prompt_name": None}
    assert said(both, "tokenize") == [tokens[1:2], []]
    assert header(post({"inputs": [" one", ""]}, "tokenize"), "x-compute-tokens") == "5"


def test_a_named_prompt_is_put_before_what_is_tokenised_and_no_other():
    body = {"inputs": "a"}
    default = msgspec.structs.replace(EMBEDDER, default_prompt="passage")
    assert asked(body, "tokenize", facts=default) == [Item("a", kinds=("tokens",))]
    assert asked(body | {"prompt_name": "query"}, "tokenize", facts=EMBEDDER) == [
        Item("a", prompt="query: ", kinds=("tokens",))
    ]


def test_similarity_is_the_cosine_of_the_source_with_each_sentence():
    found = said({"inputs": {"source_sentence": "one", "sentences": ["one", "two"]}}, "similarity")
    source, other = (vector(text, normalize=True) for text in ("one", "two"))
    assert found == pytest.approx([1.0, float(source @ other)], abs=1e-6)


@pytest.mark.parametrize("route", ["embed", "embed_root"])
def test_similarity_may_be_asked_for_where_vectors_are(route):
    body = {"inputs": {"source_sentence": "one", "sentences": ["two"]}, "parameters": {"prompt_name": "query"}}
    assert said(body, route) == said(body, "similarity")
    refused = post(body, "embed_sparse", facts=EVERY_KIND)
    assert refused.status == 413
    assert b"takes a text or a list" in refused.body


def test_every_path_but_the_root_may_go_on_with_a_model():
    paths = {route.path for route in DIALECT.routes}
    assert {f"{path}/{{model}}" for path in paths if path != "/" and "{" not in path} <= paths
    target = routing.find("POST", "/embed/org/name:int8")
    assert (target.route.name, target.model) == ("embed", "org/name:int8")


def test_texts_are_ranked_best_first_by_sigmoids_with_their_original_places():
    found = said({"query": "q", "texts": TEXTS}, "rerank_tei")
    order = sorted(range(4), key=lambda i: -logit("q", TEXTS[i]))
    assert [entry["index"] for entry in found] == order
    assert [entry["score"] for entry in found] == pytest.approx([sigmoid(logit("q", TEXTS[i])) for i in order])
    assert all(entry.keys() == {"index", "score"} for entry in found)


def test_raw_scores_are_logits_and_texts_come_back_where_asked_for():
    found = said({"query": "q", "texts": TEXTS, "raw_scores": True, "return_text": True}, "rerank_tei")
    assert {entry["text"]: entry["score"] for entry in found} == {text: logit("q", text) for text in TEXTS}


def test_late_interaction_ranks_by_the_mean_of_its_best_matches():
    (entry,) = said({"query": "one two", "texts": ["three"]}, "rerank_tei", facts=EVERY_KIND)
    query, document = (
        compute(Item(prompt + text, kinds=("multivector",))).tensors["multivector"].numpy()
        for prompt, text in (("query: ", "one two"), ("passage: ", "three"))
    )
    assert entry["score"] == pytest.approx(float((query @ document.T).max(1).mean()), rel=1e-5)


def test_predict_gives_every_label_best_first_of_a_pair_alone_or_of_a_batch():
    one = said({"inputs": ["q", "a"]}, "predict", facts=NLI, compute=several_labels)
    assert {entry["label"] for entry in one} == set(NLI.labels)
    assert sum(entry["score"] for entry in one) == pytest.approx(1)
    assert [entry["score"] for entry in one] == sorted((entry["score"] for entry in one), reverse=True)
    batch = said({"inputs": [["q", "a"], ["x", "b"]]}, "predict", facts=NLI, compute=several_labels)
    assert batch[0] == one
    raw = said({"inputs": ["q", "a"], "raw_scores": True}, "predict", facts=NLI, compute=several_labels)
    assert {entry["label"]: entry["score"] for entry in raw} == {
        "contradiction": logit("q", "a"), "entailment": -logit("q", "a"), "neutral": 0,
    }  # fmt: skip


def test_a_model_with_one_label_predicts_the_sigmoid():
    assert said({"inputs": ["q", "a"]}, "predict") == [
        {"label": "LABEL_0", "score": pytest.approx(sigmoid(logit("q", "a")))}
    ]


def test_predict_reads_texts_alone_too():
    assert asked({"inputs": [["q", "a"], ["q", "b"]]}, "predict")[0] == Item("q", pair="a", raw=True)
    seen = []

    def note(item: Item) -> Output:
        seen.append(item)
        return several_labels(Item("q", pair=item.text))

    for body in ("a", ["a"], [["a"]]):
        post({"inputs": body}, "predict", facts=NLI, compute=note)
    assert seen == [Item("a", raw=True)] * 3


@pytest.mark.parametrize(
    ("route", "body", "status", "words"),
    [
        ("embed", {}, 413, "inputs"),
        ("embed", {"inputs": []}, 400, "inputs is empty"),
        ("embed", {"inputs": ""}, 400, "inputs: the text is empty"),
        ("embed", {"inputs": ["a", " "]}, 400, "inputs[1]: the text is empty"),
        ("embed", {"inputs": [3]}, 413, "inputs[0]"),
        ("embed", {"inputs": "a", "prompt_name": "poem"}, 413, "passage, query"),
        ("embed", {"inputs": "a", "dimensions": 5}, 413, "4, 8, 12"),
        ("embed", {"inputs": "w " * 40, "truncate": False}, 413, "over 16"),
        ("embed", {"inputs": "a", "truncation_direction": "up"}, 413, "truncation_direction"),
        ("embed", b"", 413, "empty"),
        ("tokenize", {"inputs": []}, 400, "inputs is empty"),
        ("tokenize", {"inputs": 3}, 413, "inputs"),
        ("tokenize", {"inputs": "a", "prompt_name": "poem"}, 413, "no prompt named 'poem'"),
        ("tokenize", {"inputs": ["a" * 600_000, "b" * 400_001]}, 413, "1000001 characters"),
        ("similarity", {"inputs": "a"}, 413, "inputs"),
        ("similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, 400, "sentences is empty"),
        ("similarity", {"inputs": {"source_sentence": "", "sentences": ["b"]}}, 400, "inputs.source_sentence:"),
        ("similarity", {"inputs": {"source_sentence": "a", "sentences": ["b", ""]}}, 400, "inputs.sentences[1]:"),
        ("rerank_tei", {"query": "q", "texts": []}, 400, "texts is empty"),
        ("rerank_tei", {"query": "", "texts": ["a"]}, 400, "query: the text is empty"),
        ("rerank_tei", {"query": "q", "texts": ["a", ""]}, 400, "texts[1]: the text is empty"),
        ("rerank_tei", {"texts": ["a"]}, 413, "query"),
        ("rerank_tei", {"query": "q", "texts": ["a"], "prompt_name": "poem"}, 413, "poem"),
        ("predict", {"inputs": []}, 413, "inputs[0]"),
        ("predict", {"inputs": ["a", "b", "c"]}, 413, "pair is a list of two strings"),
        ("predict", {"inputs": [["a"], "b"]}, 413, "inputs[1]"),
        ("predict", {"inputs": [["q", "a"], ["q", ""]]}, 400, "inputs[1]: the text is empty"),
    ],
)
def test_bad_requests_are_refused_as_there_and_say_what_is_wrong(route, body, status, words):
    reply = post(body, route)
    assert reply.status == status
    assert words in json.loads(reply.body)["error"]
    assert json.loads(reply.body)["error_type"] == ("Empty" if status == 400 else "Validation")


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidInput("x"), 413, "Validation"),
        (InputTooLong("x"), 413, "Validation"),
        (EmptyInput("x"), 400, "Empty"),
        (Unauthorized("x"), 401, "Validation"),
        (Forbidden("x"), 403, "Validation"),
        (ModelNotFound("x"), 404, "Validation"),
        (InferenceError("x"), 424, "Backend"),
        (QueueFull("x"), 429, "Overloaded"),
        (ModelLoading("x"), 503, "Unhealthy"),
        (NoNode("x"), 503, "Unhealthy"),
        (DeadlineExceeded("x"), 504, "Backend"),
    ],
)
def test_errors_have_teis_shape_status_and_type(error, status, kind):
    reply = DIALECT.refuse(error)
    assert reply.status == status
    said = json.loads(reply.body)
    assert (said["error"], said["error_type"], said["code"]) == ("x", kind, error.code)
    assert (header(reply, "retry-after") is None) == (error.retry_after_s is None)


def test_an_item_that_could_not_be_computed_fails_the_request_and_is_named():
    fault = Fault("INFERENCE_ERROR", "broken")
    reply = post(
        {"inputs": TEXTS}, compute=lambda item: Output(fault=fault) if "two" in item.text else compute(item)
    )
    assert (reply.status, json.loads(reply.body)["error"]) == (424, "inputs[1]: broken")


def test_truncation_and_tokens_are_in_the_headers():
    reply = post({"inputs": ["a", "w " * 40]})
    assert (header(reply, "x-shoal-truncated"), header(reply, "x-compute-tokens")) == ("1", "19")


def test_only_json_is_read():
    assert post({"inputs": "a"}, content_type="application/msgpack").status == 415
