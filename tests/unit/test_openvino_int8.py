"""8-bit weights: how near they are to what they stand for, and that a batch's members do not change each other."""

import random

import numpy as np
import pytest

from shoal.protocol.facts import Profile
from shoal.protocol.items import Item
from shoal.runtimes import Runtime, open_runtime
from shoal.runtimes.openvino_int8 import quantised
from shoal.testing.checkpoints import tiny_encoder

TEXTS = ["fish", "the small fish swim", "paris is in france", "shoal " * 40, "a", "london and berlin " * 6] * 3


def test_every_weight_is_within_half_a_step_of_its_own_row():
    weight = np.random.default_rng(0).standard_normal((16, 40)).astype(np.float32)
    weight[3] *= 1000
    whole, scale = quantised(weight)
    assert whole.dtype == np.int8
    assert np.abs(whole).max(axis=1).tolist() == [127] * 16
    assert (np.abs(whole * scale - weight) <= scale * 0.5001).all()


def test_a_row_of_zeros_stays_one():
    whole, scale = quantised(np.zeros((2, 8), np.float32))
    assert not whole.any()
    assert np.isfinite(scale).all()


@pytest.fixture(scope="module")
def opened(tmp_path_factory) -> dict[str, Runtime]:
    folder = tmp_path_factory.mktemp("encoder")
    facts = tiny_encoder(folder)
    return {
        dtype: open_runtime(folder, facts, Profile(runtime="openvino", dtype=dtype)) for dtype in ("fp32", "int8")
    }


def vectors(runtime: Runtime, texts: list[str]) -> np.ndarray:
    batch = runtime.prepare([Item(text) for text in texts])
    return np.stack([row["dense"] for row in runtime.run(batch, 0).rows])


def test_the_vectors_are_near_those_of_fp32_and_not_the_same(opened):
    assert opened["int8"].profile.dtype == "int8"
    found, expected = (vectors(opened[dtype], TEXTS) for dtype in ("int8", "fp32"))
    assert (found * expected).sum(axis=1).min() >= 0.99
    assert np.abs(found - expected).max() > 1e-4


def test_a_text_has_the_same_vector_alone_batched_and_shuffled(opened):
    runtime = opened["int8"]
    alone = np.concatenate([vectors(runtime, [text]) for text in TEXTS])
    order = random.Random(1).sample(range(len(TEXTS)), len(TEXTS))
    shuffled = vectors(runtime, [TEXTS[i] for i in order])[np.argsort(order)]
    for found in (vectors(runtime, TEXTS), shuffled):
        assert (found * alone).sum(axis=1).min() >= 0.999
