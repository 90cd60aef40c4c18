"""Our own clients, blocking and asynchronous, on the same server with real models."""

import asyncio
import inspect

import numpy as np
import pytest
import pytest_asyncio
from asking import cosines, sentences

import shoal
from names import BGE, MINILM, RERANKER, VIRTUAL
from shoal.client import ItemsFailed
from shoal.protocol.errors import EmptyInput, InputTooLong, InvalidInput, ModelNotFound

pytestmark = [pytest.mark.clients, pytest.mark.models]

QUERY = "What is the capital of France?"
CAPITALS = ["London is the capital of England.", "Paris is the capital of France.", "Bananas are yellow."]


@pytest_asyncio.fixture(params=["blocking", "asynchronous"])
async def ask(request, server):
    """Calls a client's method by its name, whichever of the two clients it is."""
    kind = shoal.Client if request.param == "blocking" else shoal.AsyncClient
    client = kind(server.url, timeout_s=60)

    async def ask(method: str, *values, **options):
        answer = getattr(client, method)(*values, **options)
        return await answer if inspect.isawaitable(answer) else answer

    yield ask
    closing = client.close()
    if inspect.isawaitable(closing):
        await closing


async def test_a_thousand_texts_come_back_in_order_as_one_array(ask):
    texts = sentences(1000)
    rows = await ask("encode", MINILM, texts)
    assert (rows.shape, rows.dtype) == ((1000, 384), np.float32)
    picked = [0, 255, 256, 511, 512, 767, 768, 999]
    alone = np.stack([await ask("encode", MINILM, texts[i]) for i in picked])
    assert cosines(rows[picked], alone).min() >= 0.9999


async def test_a_string_is_one_text_and_a_list_of_one_is_a_list(ask):
    one, many = await ask("encode", MINILM, "hello"), await ask("encode", MINILM, ["hello"])
    assert (one.shape, many.shape) == ((384,), (1, 384))
    assert cosines(one, many[0]) >= 0.9999
    assert (await ask("encode", MINILM, [])).shape[0] == 0


@pytest.mark.parametrize(
    ("dtype", "width", "kind"),
    [("float16", 384, "<f2"), ("int8", 384, "|i1"), ("uint8", 384, "|u1"), ("binary", 48, "|u1")],
)
async def test_numbers_come_in_the_type_asked_for(ask, dtype, width, kind):
    rows = await ask("encode", MINILM, ["a", "b"], dtype=dtype)
    assert (rows.shape, rows.dtype.str) == ((2, width), kind)


async def test_a_vector_that_is_not_to_be_normalised_points_the_same_way(ask):
    texts = ["one text", "another, somewhat longer than the first"]
    plain = await ask("encode", MINILM, texts, normalize=False)
    assert cosines(plain, await ask("encode", MINILM, texts)).min() >= 0.9999
    assert (np.abs(np.linalg.norm(plain, axis=1) - 1) > 0.01).all()


async def test_documents_are_ranked_with_their_places_and_ids(ask):
    ranked = await ask("score", RERANKER, QUERY, [*CAPITALS[:2], {"id": "b", "text": CAPITALS[2]}])
    assert [entry.index for entry in ranked] == [1, 0, 2]
    assert [entry.id for entry in ranked] == [None, None, "b"]
    assert ranked[0].document == CAPITALS[1]
    assert [entry.index for entry in await ask("score", RERANKER, QUERY, CAPITALS, top_n=1)] == [1]


async def test_more_documents_than_one_request_holds_are_ranked_as_one(ask):
    documents = [f"Bananas number {i} are yellow." for i in range(300)]
    documents[290] = CAPITALS[1]
    ranked = await ask("score", RERANKER, QUERY, documents)
    assert ranked[0].index == 290
    assert sorted(entry.index for entry in ranked) == list(range(300))
    assert [entry.score for entry in ranked] == sorted((entry.score for entry in ranked), reverse=True)


async def test_models_are_described_and_the_catalog_lists_more(ask):
    listed = [model["name"] for model in await ask("models")]
    assert {MINILM, RERANKER, BGE} <= set(listed)
    assert set(listed) <= {model["name"] for model in await ask("models", catalog=True)}
    described = await ask("model", MINILM)
    assert (described["state"], described["dims"], described["max_sequence_length"]) == (
        "loaded",
        {"dense": 384},
        256,
    )
    assert (await ask("ready")) is True


async def test_some_bad_texts_cost_their_neighbours_nothing(ask):
    texts = ["one", "", "two", "dog " * 300]
    rows = await ask("encode", MINILM, texts, errors="return", truncate="error")
    assert [type(row) for row in rows] == [np.ndarray, EmptyInput, np.ndarray, InputTooLong]
    with pytest.raises(ItemsFailed) as failed:
        await ask("encode", MINILM, texts, truncate="error")
    assert failed.value.indices == [1, 3]
    assert cosines(failed.value.results[2], rows[2]) >= 0.9999
    with pytest.raises(ItemsFailed) as failed:
        await ask("score", RERANKER, QUERY, [CAPITALS[0], " ", CAPITALS[1]])
    assert (failed.value.indices, [entry.index for entry in failed.value.results]) == ([1], [2, 0])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (("encode", "no/such", "a"), ModelNotFound, "no/such"),
        (("encode", MINILM[:-1], "a"), ModelNotFound, MINILM),
        (("score", "no/such", "a", ["b"]), ModelNotFound, "no/such"),
        (("model", "no/such"), ModelNotFound, "no/such"),
        (("encode", MINILM, ""), EmptyInput, "empty"),
        (("encode", RERANKER, "a"), InvalidInput, "cannot encode"),
        (("score", MINILM, "a", ["b"]), InvalidInput, "cannot score"),
        (("score", RERANKER, "", ["b"]), EmptyInput, "query"),
    ],
)
async def test_what_the_server_refuses_is_raised_as_what_it_is(ask, call, error, words):
    with pytest.raises(error, match=words):
        await ask(*call)


async def test_sixty_four_callers_of_one_client_each_get_their_own(server, ours):
    texts = sentences(64)
    async with shoal.AsyncClient(server.url, timeout_s=60) as client:
        rows = await asyncio.gather(*(client.encode(MINILM, text) for text in texts))
        stand_in = await client.encode(VIRTUAL, texts)
    assert cosines(rows, ours.encode(MINILM, texts)).min() >= 0.9999
    assert stand_in.shape == (64, 384)
