"""sie-langchain, unchanged: embeddings and reranker, alone and under LangChain's own vector store."""

import numpy as np
import pytest
from asking import cosines
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from sie_langchain import SIEEmbeddings, SIEReranker
from sie_sdk import SIEAsyncClient, SIEClient
from sie_sdk.client.errors import RequestError

from names import BGE, MINILM, RERANKER

pytestmark = [pytest.mark.clients, pytest.mark.models, pytest.mark.usefixtures("impatient_sdk")]

CAPITALS = ["London is the capital of England.", "Paris is the capital of France.", "Bananas are yellow."]
QUESTION = "What is the capital of France?"


@pytest.fixture
def sdk(server):
    with SIEClient(server.url, timeout_s=60, api_key="") as client:
        yield client


def test_documents_and_a_query_become_lists_of_floats_equal_to_ours(sdk, ours):
    embeddings = SIEEmbeddings(model=MINILM, client=sdk)
    rows = embeddings.embed_documents(CAPITALS)
    assert type(rows[0][0]) is float
    assert cosines(rows, ours.encode(MINILM, CAPITALS)).min() >= 0.9999
    assert cosines(embeddings.embed_query(QUESTION), ours.encode(MINILM, QUESTION)) >= 0.9999


def test_a_query_gets_the_models_prompt_and_a_document_none(sdk, ours):
    embeddings = SIEEmbeddings(model=BGE, client=sdk)
    query, (document,) = embeddings.embed_query(QUESTION), embeddings.embed_documents([QUESTION])
    assert cosines(query, ours.encode(BGE, QUESTION, is_query=True)) >= 0.9999
    assert cosines(document, ours.encode(BGE, QUESTION)) >= 0.9999
    assert cosines(query, document) < 0.99


def test_a_vector_store_finds_paris(sdk):
    store = InMemoryVectorStore.from_texts(CAPITALS, SIEEmbeddings(model=MINILM, client=sdk))
    assert store.similarity_search(QUESTION, k=1)[0].page_content == CAPITALS[1]


def test_the_reranker_puts_paris_first_and_keeps_metadata(sdk, ours):
    documents = [Document(text, metadata={"page": i}) for i, text in enumerate(CAPITALS)]
    ranked = SIEReranker(model=RERANKER, client=sdk, top_k=2).compress_documents(documents, QUESTION)
    assert [document.metadata["page"] for document in ranked] == [1, 0]
    scores = [document.metadata["relevance_score"] for document in ranked]
    assert np.allclose(scores, [r.score for r in ours.score(RERANKER, QUESTION, CAPITALS, top_n=2)], atol=1e-3)


async def test_the_asynchronous_ways_say_the_same(server, sdk):
    async with SIEAsyncClient(server.url, timeout_s=60, api_key="") as client:
        embeddings = SIEEmbeddings(model=MINILM, client=sdk, async_client=client)
        assert cosines(await embeddings.aembed_query(QUESTION), embeddings.embed_query(QUESTION)) >= 0.9999
        rows = await embeddings.aembed_documents(CAPITALS)
        assert cosines(rows, embeddings.embed_documents(CAPITALS)).min() >= 0.9999
        reranker = SIEReranker(model=RERANKER, async_client=client)
        ranked = await reranker.acompress_documents([Document(text) for text in CAPITALS], QUESTION)
    assert [document.page_content for document in ranked] == [CAPITALS[1], CAPITALS[0], CAPITALS[2]]


def test_an_unknown_model_is_a_request_error(sdk):
    with pytest.raises(RequestError, match="no/such"):
        SIEEmbeddings(model="no/such", client=sdk).embed_query("a")
