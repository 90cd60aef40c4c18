"""The published SDK of the wire we are compatible with, unchanged, asks a running server with real models."""

import logging

import numpy as np
import pytest
import sie_sdk
from asking import cosines, sentences
from sie_sdk.client.errors import RequestError

from names import BGE, MINILM, RERANKER

pytestmark = [pytest.mark.clients, pytest.mark.models, pytest.mark.usefixtures("impatient_sdk")]

CAPITALS = ["London is the capital of England.", "Paris is the capital of France.", "Bananas are yellow."]


@pytest.fixture
def sdk(server):
    with sie_sdk.SIEClient(server.url, timeout_s=60, api_key="") as client:
        yield client


def test_one_text_gives_one_result_with_its_id_times_and_usage_and_no_warning(sdk, tokens_of, caplog):
    with caplog.at_level(logging.WARNING):
        result = sdk.encode(MINILM, {"id": "a", "text": "a quiet harbour"})
    assert caplog.records == []
    assert (result["id"], result["model"]) == ("a", MINILM)
    assert (result["dense"].dtype, result["dense"].shape) == (np.float32, (384,))
    assert abs(np.linalg.norm(result["dense"]) - 1) < 1e-3
    assert result["request"]["usage"]["input_tokens"] == tokens_of(MINILM, "a quiet harbour")
    assert 0 < result["timing"]["inference_ms"] <= result["timing"]["total_ms"]
    assert sdk.last_retry_count == 0


def test_a_thousand_texts_come_back_in_order(sdk, ours):
    texts = sentences(1000)
    results = sdk.encode(MINILM, [{"id": f"t{i}", "text": text} for i, text in enumerate(texts)])
    assert [result["id"] for result in results] == [f"t{i}" for i in range(1000)]
    picked = range(0, 1000, 111)
    alone = np.stack([ours.encode(MINILM, texts[i]) for i in picked])
    assert cosines([results[i]["dense"] for i in picked], alone).min() >= 0.9999


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8"])
def test_a_number_type_is_cast_from_the_very_same_vector(sdk, dtype):
    item = {"text": "a lantern in the meadow"}
    whole, cast = sdk.encode(MINILM, item)["dense"], sdk.encode(MINILM, item, output_dtype=dtype)["dense"]
    assert (cast.dtype, cast.shape) == (np.dtype(dtype), (384,))
    values = cast.astype(np.float64)
    if dtype == "uint8":  # 0 is the least component and 255 the greatest
        values = values * (whole.max() - whole.min()) / 255 + whole.min()
    assert cosines(values, whole) >= 0.999


@pytest.mark.parametrize("dtype", ["binary", "ubinary"])
def test_binary_is_the_signs_packed_in_bytes(sdk, dtype):
    item = {"text": "a lantern in the meadow"}
    packed = sdk.encode(MINILM, item, output_dtype=dtype)["dense"]
    assert (packed.dtype, packed.shape) == (np.uint8, (48,))
    assert (np.unpackbits(packed) == (sdk.encode(MINILM, item)["dense"] > 0)).mean() > 0.99


def test_is_query_puts_the_models_prompt_before_the_text_as_an_instruction_would(sdk):
    prompt = sdk.get_model(BGE)["prompts"]["query"]
    item = {"text": "how are permits granted"}
    plain, asked = sdk.encode(BGE, item)["dense"], sdk.encode(BGE, item, is_query=True)["dense"]
    assert cosines(sdk.encode(BGE, item, instruction=prompt)["dense"], asked) >= 0.9999
    assert cosines(sdk.encode(BGE, item, is_query=False)["dense"], plain) >= 0.9999
    assert cosines(plain, asked) < 0.99


def test_options_of_the_client_and_of_a_call_reach_the_model(server):
    with sie_sdk.SIEClient(server.url, api_key="", options={"truncate": "error"}) as client:
        with pytest.raises(RequestError, match="256") as refused:
            client.encode(MINILM, {"text": "dog " * 300})
        assert (refused.value.status_code, refused.value.code) == (413, "INPUT_TOO_LONG")
        assert client.encode(MINILM, {"text": "dog " * 300}, options={"truncate": "end"})["dense"].shape == (384,)


def test_scores_are_ranked_keep_their_ids_and_put_paris_first(sdk, tokens_of):
    query = "What is the capital of France?"
    documents = [{"text": text, "id": text[:6]} for text in CAPITALS[:2]] + [{"text": CAPITALS[2]}]
    result = sdk.score(RERANKER, {"text": query, "id": "q"}, documents)
    assert [entry["item_id"] for entry in result["scores"]] == ["Paris ", "London", "item-2"]
    assert [entry["rank"] for entry in result["scores"]] == [0, 1, 2]
    scores = [entry["score"] for entry in result["scores"]]
    assert scores == sorted(scores, reverse=True)
    assert (result["model"], result["query_id"]) == (RERANKER, "q")
    assert result["usage"]["input_tokens"] == sum(tokens_of(RERANKER, query, text) for text in CAPITALS)
    assert result["request"]["usage"]["input_tokens"] == result["usage"]["input_tokens"]


def test_models_are_listed_with_what_the_sdk_reads_of_them(sdk):
    models = {model["name"]: model for model in sdk.list_models()}
    assert {MINILM, RERANKER, BGE} <= models.keys()
    encoder, reranker = models[MINILM], models[RERANKER]
    assert (encoder["inputs"], encoder["outputs"], encoder["dims"]) == (["text"], ["dense"], {"dense": 384})
    assert (reranker["outputs"], reranker["max_sequence_length"]) == (["score"], 512)
    assert (encoder["loaded"], encoder["state"], encoder["last_error"]) == (True, "loaded", None)
    assert sdk.get_model(MINILM) == encoder


@pytest.mark.parametrize(
    ("ask", "status", "code", "words"),
    [
        (lambda sdk: sdk.encode("no/such", {"text": "a"}), 404, "MODEL_NOT_FOUND", "no/such"),
        (lambda sdk: sdk.score("no/such", {"text": "a"}, [{"text": "a"}]), 404, "MODEL_NOT_FOUND", "no/such"),
        (lambda sdk: sdk.get_model("no/such"), 404, "MODEL_NOT_FOUND", "no/such"),
        (lambda sdk: sdk.encode(MINILM, []), 400, "INVALID_INPUT", "items is empty"),
        (lambda sdk: sdk.encode(MINILM, {"text": ""}), 400, "EMPTY_INPUT", "empty"),
        (lambda sdk: sdk.encode(MINILM, {"id": "no text"}), 400, "EMPTY_INPUT", "empty"),
        (lambda sdk: sdk.encode(MINILM, {"text": "a"}, output_types=["sparse"]), 400, "INVALID_INPUT", "sparse"),
        (lambda sdk: sdk.encode(MINILM, {"text": "a"}, output_dtype="bf16"), 400, "INVALID_INPUT", "bf16"),
        (lambda sdk: sdk.encode(RERANKER, {"text": "a"}), 400, "INVALID_INPUT", "cannot encode"),
        (
            lambda sdk: sdk.encode(MINILM, {"text": "a"}, options={"lora_id": "x"}),
            404,
            "MODEL_NOT_FOUND",
            "adapter",
        ),
        (lambda sdk: sdk.encode(MINILM, {"text": "a"}, options={"profile": "x"}), 400, "INVALID_INPUT", "profile"),
        (lambda sdk: sdk.score(MINILM, {"text": "a"}, [{"text": "a"}]), 400, "INVALID_INPUT", "cannot score"),
        (lambda sdk: sdk.score(RERANKER, {"text": "a"}, []), 400, "INVALID_INPUT", "items is empty"),
        (lambda sdk: sdk.score(RERANKER, {"text": ""}, [{"text": "a"}]), 400, "EMPTY_INPUT", "query"),
        (lambda sdk: sdk.score(RERANKER, {"text": "a"}, [{"text": "a"}] * 1001), 400, "INVALID_INPUT", "1000"),
        (lambda sdk: sdk.extract(MINILM, {"text": "a"}, labels=["x"]), 404, "NOT_FOUND", "extract"),
    ],
)
def test_what_cannot_be_answered_is_a_request_error_that_is_not_retried(sdk, ask, status, code, words):
    with pytest.raises(RequestError, match=words) as refused:
        ask(sdk)
    assert (refused.value.status_code, refused.value.code) == (status, code)
    assert sdk.last_retry_count == 0


def test_one_empty_text_leaves_its_place_without_a_vector_and_its_neighbours_with_theirs(sdk):
    results = sdk.encode(MINILM, [{"text": "one"}, {"text": ""}, {"text": "two"}])
    assert ["dense" in result for result in results] == [True, False, True]
    scores = sdk.score(RERANKER, {"text": "q"}, [{"text": ""}, {"text": "one"}])["scores"]
    assert [(entry["item_id"], entry["score"] < -1e38) for entry in scores] == [
        ("item-1", False),
        ("item-0", True),
    ]
