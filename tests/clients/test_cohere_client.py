"""Cohere's own client, both of its generations: rerank and embed, each under /v1 and /v2."""

import base64

import cohere
import numpy as np
import pytest
import pytest_asyncio
from asking import cosines, sentences

from names import BGE, MINILM, RERANKER

pytestmark = [pytest.mark.clients, pytest.mark.models]

QUERY = "What is the capital of France?"
CAPITALS = ["London is the capital of England.", "Paris is the capital of France.", "Bananas are yellow."]


@pytest.fixture(params=[cohere.Client, cohere.ClientV2], ids=["v1", "v2"])
def client(request, server):
    with request.param(api_key="none", base_url=server.url, timeout=60) as client:
        yield client


@pytest_asyncio.fixture
async def asynchronous(server):
    async with cohere.AsyncClientV2(api_key="none", base_url=server.url, timeout=60) as client:
        yield client


def places(answer) -> list[int]:
    return [result.index for result in answer.results]


def test_documents_come_back_best_first_by_their_original_places(client, ours):
    answer = client.rerank(model=RERANKER, query=QUERY, documents=CAPITALS)
    assert places(answer) == [1, 0, 2]
    scores = np.array([result.relevance_score for result in answer.results])
    assert ((scores > 0) & (scores < 1)).all()
    logits = [ranked.score for ranked in ours.score(RERANKER, QUERY, CAPITALS, raw=True)]
    assert np.allclose(np.log(scores / (1 - scores)), logits, atol=1e-3)
    assert answer.id
    assert answer.meta.billed_units.search_units == 1


@pytest.mark.parametrize(
    ("top_n", "kept"), [(1, [1]), (2, [1, 0]), (3, [1, 0, 2]), (50, [1, 0, 2]), (None, [1, 0, 2])]
)
def test_top_n_keeps_the_best_and_none_or_more_than_there_are_means_all(client, top_n, kept):
    assert places(client.rerank(model=RERANKER, query=QUERY, documents=CAPITALS, top_n=top_n)) == kept


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"documents": []}, cohere.BadRequestError, "documents is empty"),
        ({"documents": ["a", "", "b"]}, cohere.BadRequestError, "documents[1]: the text is empty"),
        ({"query": ""}, cohere.BadRequestError, "query: the text is empty"),
        ({"top_n": 0}, cohere.BadRequestError, "top_n"),
        ({"top_n": -1}, cohere.BadRequestError, "top_n"),
        ({"model": "no/such"}, cohere.NotFoundError, "no/such"),
        ({"model": MINILM}, cohere.BadRequestError, "cannot score"),
    ],
)
def test_what_is_refused_is_the_clients_own_error_with_our_words(client, asked, error, words):
    with pytest.raises(error) as refused:
        client.rerank(**{"model": RERANKER, "query": QUERY, "documents": CAPITALS} | asked)
    assert words in refused.value.body["message"]


def test_the_first_generation_takes_text_objects_and_gives_documents_back(server):
    with cohere.Client(api_key="none", base_url=server.url, timeout=60) as client:
        answer = client.rerank(
            model=RERANKER,
            query=QUERY,
            documents=[{"text": text} for text in CAPITALS],
            rank_fields=["text"],
            return_documents=True,
            top_n=2,
        )
    assert [result.document.text for result in answer.results] == [CAPITALS[1], CAPITALS[0]]


async def test_the_asynchronous_client_gets_the_same(asynchronous):
    answer = await asynchronous.rerank(model=RERANKER, query=QUERY, documents=CAPITALS, top_n=2)
    assert places(answer) == [1, 0]
    with pytest.raises(cohere.NotFoundError):
        await asynchronous.rerank(model="no/such", query=QUERY, documents=CAPITALS)


@pytest.fixture
def second(server):
    with cohere.ClientV2(api_key="none", base_url=server.url, timeout=60) as client:
        yield client


def test_texts_are_embedded_in_every_type_asked_for(second, ours):
    texts = sentences(96)
    types = ["float", "int8", "uint8", "binary", "ubinary", "base64"]
    answer = second.embed(model=MINILM, texts=texts, input_type="search_document", embedding_types=types)
    expected = ours.encode(MINILM, texts)
    found = answer.embeddings
    assert cosines(found.float_, expected).min() >= 0.9999
    assert cosines(found.int8, expected).min() >= 0.999
    assert cosines([np.frombuffer(base64.b64decode(row), "<f4") for row in found.base64], expected).min() >= 0.9999
    assert (np.unpackbits(np.array(found.ubinary, np.uint8), axis=1) == (expected > 0)).mean() > 0.99
    assert np.array_equal(np.array(found.binary) + 128, found.ubinary)
    assert np.array(found.uint8).max() == 255
    assert answer.texts == texts
    assert answer.meta.billed_units.input_tokens > len(texts)


def test_an_input_type_puts_the_models_prompt_before_the_text(second, ours):
    def embed(input_type: str) -> list[float]:
        return second.embed(model=BGE, texts=["how are permits granted"], input_type=input_type).embeddings.float_[
            0
        ]

    asked, plain = (ours.encode(BGE, "how are permits granted", is_query=each) for each in (True, False))
    assert cosines(embed("search_query"), asked) >= 0.9999
    for input_type in ("search_document", "classification", "clustering"):
        assert cosines(embed(input_type), plain) >= 0.9999
    assert cosines(asked, plain) < 0.99


def test_inputs_of_text_content_are_embedded(second, ours):
    inputs = [{"content": [{"type": "text", "text": text}]} for text in CAPITALS]
    answer = second.embed(model=MINILM, inputs=inputs, input_type="search_document")
    assert cosines(answer.embeddings.float_, ours.encode(MINILM, CAPITALS)).min() >= 0.9999


def test_the_first_generation_embeds_many_texts_in_batches_of_its_own(server, ours):
    texts = sentences(200)
    with cohere.Client(api_key="none", base_url=server.url, timeout=60) as client:
        answer = client.embed(model=MINILM, texts=texts, input_type="search_document")
    assert cosines(answer.embeddings, ours.encode(MINILM, texts)).min() >= 0.9999


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"texts": []}, cohere.BadRequestError, "texts is missing or empty"),
        ({"texts": ["a", ""]}, cohere.BadRequestError, "texts[1]: the text is empty"),
        ({"input_type": "poem"}, cohere.BadRequestError, "input_type"),
        ({"output_dimension": 7}, cohere.BadRequestError, "trained for 384"),
        ({"embedding_types": ["float64"]}, cohere.BadRequestError, "embedding_types"),
        ({"images": ["data:image/png;base64,AA=="]}, cohere.BadRequestError, "images"),
        ({"model": "no/such"}, cohere.NotFoundError, "no/such"),
        ({"model": RERANKER}, cohere.BadRequestError, "cannot encode"),
    ],
)
def test_what_cannot_be_embedded_is_refused_in_our_words(second, asked, error, words):
    with pytest.raises(error) as refused:
        second.embed(**{"model": MINILM, "texts": CAPITALS, "input_type": "search_document"} | asked)
    assert words in refused.value.body["message"]


def test_too_long_a_text_is_cut_as_truncate_says(second):
    def embed(**asked) -> list[float]:
        texts = ["harbour " * 400 + "lighthouse"]
        answer = second.embed(model=MINILM, texts=texts, input_type="search_document", **asked)
        return answer.embeddings.float_[0]

    assert cosines(embed(), embed(truncate="END")) >= 0.9999
    assert cosines(embed(truncate="START"), embed()) < 0.9999
    with pytest.raises(cohere.core.ApiError) as refused:
        embed(truncate="NONE")
    assert refused.value.status_code == 413
