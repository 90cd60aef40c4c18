"""A text that a model cannot compute fails by itself: its neighbours in the batch get the rows they get alone."""

import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Item, Output
from shoal.runtimes import Prepared, Runtime, open_runtime
from shoal.runtimes.compute import compute
from shoal.testing.checkpoints import tiny_encoder, tiny_reranker, tiny_tokenizer
from shoal.testing.heads import tiny_dense, tiny_multivector, tiny_sparse

MODELS: dict[str, Callable[[Path], Facts]] = {
    "mean": tiny_encoder,
    "cls": lambda folder: tiny_encoder(folder, pooling="cls"),
    "max": lambda folder: tiny_encoder(folder, pooling="max"),
    "dense": tiny_dense,
    **{f"dense-{a}": functools.partial(tiny_dense, layers=[(48, a)]) for a in ("relu", "gelu", "sigmoid", "silu")},
    "sparse": tiny_sparse,
    "multivector": tiny_multivector,
    "score": tiny_reranker,
}
RUNTIMES = {
    "openvino": "fp32",
    "openvino-bf16": "bf16",
    "openvino-int8": "int8",
    "onnx": "fp32",
    "pytorch": "fp32",
}
POISON = "fish"


@pytest.fixture(scope="module", params=[np.nan, np.inf], ids=["nan", "inf"])
def value(request: Any) -> float:
    return float(request.param)


@pytest.fixture(scope="module", params=MODELS)
def model(request: Any, value: float, tmp_path_factory: Any) -> tuple[Path, Facts]:
    """One word's row of the words' table holds `value`."""
    folder = tmp_path_factory.mktemp("model")
    facts = MODELS[request.param](folder)
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if name.endswith("word_embeddings.weight"))
    weights[name][tiny_tokenizer().token_to_id(POISON)] = value
    if facts.sparse is not None:  # else that word's own weight would be NaN for every text
        weights["cls.predictions.decoder.weight"] = np.nan_to_num(weights[name], posinf=1.0)
    save_file(weights, folder / "model.safetensors")
    return folder, facts


@pytest.fixture(scope="module", params=RUNTIMES)
def runtime(request: Any, model: tuple[Path, Facts]) -> tuple[Runtime, Facts]:
    name = request.param.partition("-")[0]
    if name == "pytorch":
        pytest.importorskip("sentence_transformers")
    folder, facts = model
    if request.param.endswith("int8") and facts.kinds != ("dense",):
        pytest.skip("8-bit weights are offered for dense vectors alone")
    profile = Profile(runtime=name, dtype=RUNTIMES[request.param], streams=1)  # type: ignore[arg-type]  # one of them
    return open_runtime(folder, facts, profile), facts


def computed(runtime: Runtime, items: list[Item]) -> list[Output]:
    entries = runtime.prepare(items)
    assert all(isinstance(entry, Prepared) for entry in entries)
    return compute(runtime, entries, 0, [""] * len(entries))[0]  # type: ignore[arg-type]  # as was just seen


def test_of_a_batch_only_the_text_that_is_not_finite_fails(runtime: tuple[Runtime, Facts]) -> None:
    engine, facts = runtime
    rng = random.Random(3)
    words = ["the", "a", "of", "london", "paris", "small"]
    texts = [" ".join(rng.choices(words, k=rng.choice([1, 2, 5, 13, 40]))) for _ in range(9)]
    for place in (0, 4, 8):
        texts[place] += f" {POISON}"
    asked = {"pair": "the capital"} if facts.reads_pairs else {}
    items = [Item(text, kinds=facts.kinds, **asked) for text in texts]
    outputs = computed(engine, items)
    for item, output in zip(items, outputs, strict=True):
        if POISON in item.text:
            assert output.fault is not None
            assert output.fault.code == "NON_FINITE_OUTPUT"
            continue
        assert output.fault is None
        (alone,) = computed(engine, [item])
        for name, tensor in alone.tensors.items():
            np.testing.assert_allclose(output.tensors[name].numpy(), tensor.numpy(), rtol=0.05, atol=0.02)
