"""TEI's clients, huggingface_hub and langchain-huggingface, against a running server; they are given its URL."""

import numpy as np
import pytest
from asking import cosines, sentences
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from langchain_huggingface import HuggingFaceEndpointEmbeddings
from tokenizers import Encoding

from names import BGE, MINILM, RERANKER

pytestmark = [pytest.mark.clients, pytest.mark.models]

QUERY = "What is the capital of France?"
CAPITALS = ["London is the capital of England.", "Paris is the capital of France.", "Bananas are yellow."]


@pytest.fixture(params=["", "/embed"])
def hub(request, server) -> InferenceClient:
    """The client posts to just the URL it is given."""
    return InferenceClient(base_url=server.url + request.param, timeout=60)


@pytest.fixture
def langchain(server) -> HuggingFaceEndpointEmbeddings:
    return HuggingFaceEndpointEmbeddings(model=server.url)


def test_features_of_one_text_and_of_many_are_the_vectors_of_the_default_encoder(hub, ours):
    one = hub.feature_extraction("a quiet harbour")
    assert (one.shape, one.dtype) == ((1, 384), np.float32)
    assert cosines(one[0], ours.encode(MINILM, "a quiet harbour")) >= 0.9999
    many = sentences(200)
    assert cosines(hub.feature_extraction(many), ours.encode(MINILM, many)).min() >= 0.9999


def test_what_the_hubs_client_asks_of_features_is_done(hub):
    long = "harbour " * 400
    head, tail = (
        hub.feature_extraction(long + "end", truncate=True, truncation_direction=side)
        for side in ("right", "left")
    )
    assert cosines(head, hub.feature_extraction(long)).min() >= 0.9999
    assert cosines(head, tail).min() < 0.9999
    assert np.allclose(np.linalg.norm(hub.feature_extraction("a", normalize=True), axis=1), 1, atol=1e-3)


@pytest.mark.parametrize(
    ("text", "asked", "status", "words"),
    [
        ("harbour " * 400, {"truncate": False}, 413, "256"),
        ("a", {"prompt_name": "poem"}, 413, "no prompt named 'poem'"),
        ("a", {"dimensions": 7}, 413, "trained for 384"),
        ("", {}, 400, "inputs: the text is empty"),
        (["a", ""], {}, 400, "inputs[1]: the text is empty"),
    ],
)
def test_what_is_refused_is_the_hubs_own_error_with_our_words(hub, text, asked, status, words):
    with pytest.raises(HfHubHTTPError) as refused:
        hub.feature_extraction(text, **asked)
    assert refused.value.response.status_code == status
    assert words in refused.value.response.json()["error"]


def test_sentences_are_compared_by_the_cosine_of_their_vectors(server, ours):
    client = InferenceClient(base_url=f"{server.url}/similarity", timeout=60)
    found = client.sentence_similarity(QUERY, CAPITALS)
    expected = cosines(ours.encode(MINILM, CAPITALS), ours.encode(MINILM, QUERY))
    assert np.allclose(found, expected, atol=2e-3)
    assert np.argmax(found) == 1


def test_a_url_that_goes_on_with_a_model_is_for_that_model(server, ours):
    url = f"{server.url}/embed/{BGE}"
    client = InferenceClient(base_url=url, timeout=60)
    expected = ours.encode(BGE, CAPITALS)
    assert cosines(client.feature_extraction(CAPITALS), expected).min() >= 0.99
    assert np.argmax(client.sentence_similarity(QUERY, CAPITALS)) == 1
    langchain = HuggingFaceEndpointEmbeddings(model=url)
    assert cosines(np.array(langchain.embed_documents(CAPITALS)), expected).min() >= 0.99


async def test_the_asynchronous_client_gets_the_same(server, ours):
    async with AsyncInferenceClient(base_url=f"{server.url}/embed", timeout=60) as client:
        assert cosines(await client.feature_extraction(CAPITALS), ours.encode(MINILM, CAPITALS)).min() >= 0.9999


def test_langchain_embeds_documents_and_a_query(langchain, ours):
    texts = sentences(50)
    assert cosines(langchain.embed_documents(texts), ours.encode(MINILM, texts)).min() >= 0.9999
    assert cosines(langchain.embed_query("what is it"), ours.encode(MINILM, "what is it")) >= 0.9999


async def test_langchain_embeds_asynchronously_too(langchain, ours):
    async with langchain.async_client:
        found = await langchain.aembed_documents(CAPITALS)
        assert cosines(found, ours.encode(MINILM, CAPITALS)).min() >= 0.9999
        assert cosines(await langchain.aembed_query(QUERY), ours.encode(MINILM, QUERY)) >= 0.9999


def test_langchains_options_go_with_each_request(server):
    refuses = HuggingFaceEndpointEmbeddings(model=server.url, model_kwargs={"truncate": False})
    with pytest.raises(HfHubHTTPError):
        refuses.embed_query("harbour " * 400)


def test_texts_are_reranked_paris_first_as_logits_or_between_0_and_1(http, ours):
    body = {"query": QUERY, "texts": CAPITALS}
    found = http.post("/rerank", json=body).json()
    assert [entry["index"] for entry in found] == [1, 0, 2]
    assert all(0 < entry["score"] < 1 for entry in found)
    raw = http.post("/rerank", json=body | {"raw_scores": True, "return_text": True}).json()
    logits = {entry.document: entry.score for entry in ours.score(RERANKER, QUERY, CAPITALS)}
    assert {entry["text"]: entry["score"] for entry in raw} == pytest.approx(logits, abs=1e-3)


def test_pairs_are_predicted_as_they_are_reranked(http):
    pairs = [[QUERY, text] for text in CAPITALS]
    found = http.post("/predict", json={"inputs": pairs, "raw_scores": True}).json()
    ranked = http.post("/rerank", json={"query": QUERY, "texts": CAPITALS, "raw_scores": True}).json()
    assert {i: entry["score"] for i, (entry,) in enumerate(found)} == pytest.approx(
        {entry["index"]: entry["score"] for entry in ranked}, abs=1e-3
    )
    assert found[0][0]["label"] == "LABEL_0"


@pytest.mark.parametrize("model", [MINILM, RERANKER])
def test_tokens_are_those_of_the_models_own_tokenizer(http, tokenizer_of, model):
    long = "the quiet harbour " * 500
    texts = ["héllo [SEP] Wörld 😀 unaffable", "", " \t ", "ﬁne İstanbul 東京", long]
    for special in (True, False):
        body = {"model": model, "inputs": texts, "add_special_tokens": special}
        read = [tokenizer_of(model).encode(text, add_special_tokens=special) for text in texts]
        assert http.post("/tokenize", json=body).json() == list(map(tokens, read, texts))


def tokens(read: Encoding, text: str) -> list[dict[str, object]]:
    return [
        {"id": id, "text": name, "special": True, "start": None, "stop": None}
        if special
        else {"id": id, "text": text[start:stop], "special": False, "start": start, "stop": stop}
        for id, name, special, (start, stop) in zip(
            read.ids, read.tokens, read.special_tokens_mask, read.offsets, strict=True
        )
    ]


def test_a_text_alone_is_tokenised_by_the_default_encoder(http, tokenizer_of):
    (found,) = http.post("/tokenize", json={"inputs": "a quiet harbour"}).json()
    assert [token["id"] for token in found] == tokenizer_of(MINILM).encode("a quiet harbour").ids


def test_info_and_health_say_who_answers(http):
    assert http.get("/info").json()["model_id"] == MINILM
    assert http.get("/info").json()["max_input_length"] == 256
    assert http.get("/health").status_code == 200
