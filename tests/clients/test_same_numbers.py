"""A text's vector does not depend on who travels with it, nor on the way it came."""

import asyncio

import numpy as np
import pytest
from asking import ENCODERS, cosines, sentences

import shoal
from names import BGE, MINILM

pytestmark = [pytest.mark.clients, pytest.mark.models]


def with_long_neighbours() -> tuple[list[str], list[int]]:
    """Texts of 1 to over 256 tokens, and the places of the short ones among them."""
    short = sentences(40)
    texts = [text for i, text in enumerate(short) for text in (text, f"a long neighbour {i} " * (i * 2 + 1))]
    return texts, list(range(0, len(texts), 2))


@pytest.mark.parametrize("model", [MINILM, BGE])
def test_alone_in_a_batch_and_shuffled_among_long_neighbours_a_text_has_one_vector(http, ours, model):
    texts, short = with_long_neighbours()
    together = ours.encode(model, texts)
    tolerance = http.get(f"/v1/models/{model}").json()["tolerance"]
    assert tolerance >= 0.9999
    order = np.random.default_rng(3).permutation(len(texts))
    shuffled = np.empty_like(together)
    shuffled[order] = ours.encode(model, [texts[i] for i in order])
    alone = np.stack([ours.encode(model, texts[i]) for i in short])
    assert cosines(together, shuffled).min() >= tolerance
    assert cosines(alone, together[short]).min() >= tolerance
    assert cosines(alone, shuffled[short]).min() >= tolerance


async def test_a_text_asked_for_by_many_at_once_has_the_vector_it_has_alone(server, ours):
    texts, _ = with_long_neighbours()
    expected = ours.encode(MINILM, texts)
    async with shoal.AsyncClient(server.url, timeout_s=60) as client:
        rounds = await asyncio.gather(*(client.encode(MINILM, text) for text in texts * 3))
    for number in range(3):
        assert cosines(rounds[number * len(texts) :][: len(texts)], expected).min() >= 0.9999


def test_every_route_gives_the_same_vector(http, ours):
    text = "the same numbers whichever way one asks"
    for ask in ENCODERS.values():
        assert cosines(ask(http, text).value, ours.encode(MINILM, text)) >= 0.9999


def test_what_a_loaded_model_computes_in_is_shown(http, ours):
    ours.encode(BGE, "wake up")
    listed = {model["name"]: model for model in http.get("/v1/models").json()["models"]}
    assert (listed[BGE]["runtime"], listed[BGE]["dtype"]) == ("onnx", "int8")
    assert listed[MINILM]["dtype"] in ("bf16", "fp32")
