"""SPLADE-tiny beside sentence-transformers: the weights, and how well they retrieve."""

import random

import numpy as np
import pytest
from faq import ndcg_at_10

from shoal.catalog import Model
from shoal.protocol.facts import Profile
from shoal.protocol.items import Item
from shoal.runtimes import Prepared, Runtime, open_runtime

pytestmark = pytest.mark.models

WORDS = 30522
TEXTS = ["a", "fish", "Paris is the capital of France.", "日本語のテキスト", "😀 and \u200b invisible"] + [
    "swim " * n for n in (1, 2, 509, 510, 511, 2000)
]


@pytest.fixture(scope="session")
def reference(splade):
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sentence_transformer.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    transformer = Transformer(str(splade.folder), transformer_task="fill-mask", max_seq_length=512)
    return SparseEncoder(modules=[transformer, SpladePooling("max")], device="cpu")


def opened(model: Model, engine: str) -> Runtime:
    return open_runtime(model.folder, model.facts, Profile(runtime=engine))


def encoded(runtime: Runtime, texts: list[str]) -> np.ndarray:
    """[texts, words] with all the zeros."""
    batch = runtime.prepare([Item(text, kinds=("sparse",)) for text in texts])
    assert all(isinstance(entry, Prepared) for entry in batch)
    found = np.zeros((len(texts), WORDS), np.float32)
    for at in range(0, len(batch), 8):
        for row, out in zip(runtime.run(batch[at : at + 8], 0).rows, found[at:], strict=False):
            out[row["sparse.indices"]] = row["sparse.values"]
    return found


def by_reference(reference, texts: list[str]) -> np.ndarray:
    weights: np.ndarray = reference.encode(texts, convert_to_sparse_tensor=False, batch_size=8).numpy()
    return weights


@pytest.mark.parametrize("engine", ["openvino", "onnx"])
def test_splade_gives_the_weights_of_sentence_transformers_whatever_the_batch(splade, reference, engine):
    runtime = opened(splade, engine)
    expected = by_reference(reference, TEXTS)
    order = random.Random(3).sample(range(len(TEXTS)), len(TEXTS))
    shuffled = encoded(runtime, [TEXTS[i] for i in order])[np.argsort(order)]
    alone = np.concatenate([encoded(runtime, [text]) for text in TEXTS])
    for found in (alone, encoded(runtime, TEXTS), shuffled):
        # A weight is never nearer to its reference than fp32 sums of logits around 10 are.
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-5)
        assert ((found > 0) == (expected > 0)).mean() > 0.9999


def test_splade_retrieves_as_well_as_the_reference(splade, reference, faq):
    runtime = opened(splade, "openvino")
    served = ndcg_at_10(*(encoded(runtime, texts) for texts in faq))
    expected = ndcg_at_10(*(by_reference(reference, texts) for texts in faq))
    assert abs(expected - 0.595) <= 0.005
    assert abs(served - expected) <= 0.005
