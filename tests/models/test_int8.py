"""8-bit weights of a real model: what is said on its card holds, also for a text among others."""

import random

import numpy as np
import pytest

from names import MINILM
from shoal.catalog.store import Store
from shoal.protocol.facts import Profile
from shoal.protocol.items import Item
from shoal.runtimes import Runtime, open_runtime

pytestmark = pytest.mark.models

TEXTS = [
    "a",
    "Paris is the capital of France.",
    "When do I need a permit for a garage?",
    "Das Haus am See wurde 1923 gebaut – für 12.000 Mark.",
    "def f(x):\n    return x ** 2  # a comment",
    *("The quick brown fox jumps over the lazy dog. " * n for n in (1, 3, 9, 40)),
    *("fish " * n for n in (2, 253, 254, 255)),
]


def vectors(runtime: Runtime, texts: list[str]) -> np.ndarray:
    return np.stack([row["dense"] for row in runtime.run(runtime.prepare([Item(text) for text in texts]), 0).rows])


def test_a_text_is_as_near_to_fp32_as_the_card_says_alone_batched_and_shuffled(home):
    model = Store(home).resolve(f"{MINILM}:int8")
    exact, narrow = (
        open_runtime(model.folder, model.facts, Profile(runtime="openvino", dtype=dtype))
        for dtype in ("fp32", "int8")
    )
    expected = vectors(exact, TEXTS)
    alone = np.concatenate([vectors(narrow, [text]) for text in TEXTS])
    order = random.Random(1).sample(range(len(TEXTS)), len(TEXTS))
    shuffled = vectors(narrow, [TEXTS[i] for i in order])[np.argsort(order)]
    said = model.card.variants["int8"].tolerance
    for found in (alone, vectors(narrow, TEXTS), shuffled):
        assert (found * expected).sum(axis=1).min() >= said
        assert (found * alone).sum(axis=1).min() >= 0.9995
