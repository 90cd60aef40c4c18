"""The asynchronous twin of the published SDK, whose HTTP stack is another one (aiohttp)."""

import asyncio

import numpy as np
import pytest
import pytest_asyncio
import sie_sdk
from asking import cosines, sentences
from sie_sdk.client.errors import RequestError

from names import MINILM, RERANKER

pytestmark = [pytest.mark.clients, pytest.mark.models, pytest.mark.usefixtures("impatient_sdk")]


@pytest_asyncio.fixture
async def sdk(server):
    async with sie_sdk.SIEAsyncClient(server.url, timeout_s=60, api_key="") as client:
        yield client


async def test_many_calls_at_once_each_get_their_own_vector(sdk, ours):
    texts = sentences(64)
    results = await asyncio.gather(*(sdk.encode(MINILM, {"id": text, "text": text}) for text in texts))
    assert [result["id"] for result in results] == texts
    assert {(result["dense"].dtype.str, result["dense"].shape) for result in results} == {("<f4", (384,))}
    assert cosines([result["dense"] for result in results], ours.encode(MINILM, texts)).min() >= 0.9999


async def test_a_thousand_texts_come_back_in_order(sdk):
    results = await sdk.encode(MINILM, [{"id": str(i), "text": t} for i, t in enumerate(sentences(1000))])
    assert [result["id"] for result in results] == [str(i) for i in range(1000)]
    assert np.isfinite([result["dense"] for result in results]).all()


async def test_scores_models_and_errors_are_those_of_the_blocking_client(sdk, server):
    asked = {"text": "q"}, [{"text": "an answer to q"}, {"text": "something else"}]
    with sie_sdk.SIEClient(server.url, api_key="") as blocking:
        expected, listed = blocking.score(RERANKER, *asked)["scores"], blocking.list_models()
    got = (await sdk.score(RERANKER, *asked))["scores"]
    assert [entry["item_id"] for entry in got] == [entry["item_id"] for entry in expected]
    assert np.allclose([e["score"] for e in got], [e["score"] for e in expected], atol=1e-3)
    assert [model["name"] for model in await sdk.list_models()] == [model["name"] for model in listed]
    assert (await sdk.get_model(MINILM))["dims"] == {"dense": 384}
    for call in (sdk.encode("no/such", {"text": "a"}), sdk.get_model("no/such")):
        with pytest.raises(RequestError) as refused:
            await call
        assert (refused.value.status_code, refused.value.code) == (404, "MODEL_NOT_FOUND")
    with pytest.raises(RequestError, match="empty"):
        await sdk.encode(MINILM, {"text": " "})
