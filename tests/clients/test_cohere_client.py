"""Cohere's own client, both of its generations, on /v1/rerank and /v2/rerank."""

import cohere
import numpy as np
import pytest
import pytest_asyncio

from names import MINILM, RERANKER

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
