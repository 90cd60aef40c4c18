"""Heads with random weights, put on a tiny BERT (checkpoints.py) in the files that publishers write them to."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from shoal.protocol.facts import Dense, Facts, MultiVector, Sparse
from shoal.testing.checkpoints import WIDTH, tiny_encoder, tiny_reranker, tiny_tokenizer

Weights = dict[str, NDArray[np.float32]]
TOKEN_DIMS = 16


def tiny_dense(folder: Path, layers: Sequence[tuple[int, str]] = ((48, "tanh"), (24, "identity"))) -> Facts:
    """An encoder with Dense modules after its pooling, each of a width and an activation."""
    facts = tiny_encoder(folder)
    dense, width = [], WIDTH
    for number, (out, activation) in enumerate(layers, 2):
        name = f"{number}_Dense"
        _write_layer(folder / name, out, width, bias=number % 2 == 0)
        dense.append(msgspec.convert({"folder": name, "activation": activation}, Dense))
        width = out
    return msgspec.structs.replace(facts, dense=tuple(dense), dims=width, matryoshka=(width // 2,))


def tiny_sparse(folder: Path, *, tied: bool = True, sparse: Sparse | None = None) -> Facts:
    """A SPLADE model: BERT with its masked-language-model head. Its words get weights about as often as not."""
    facts = tiny_encoder(folder)
    random = np.random.default_rng(1)
    words = tiny_tokenizer().get_vocab_size()
    head = "cls.predictions"
    weights = _linear(random, f"{head}.transform.dense", WIDTH, WIDTH)
    weights |= {
        f"{head}.transform.LayerNorm.weight": 1 + _drawn(random, WIDTH),
        f"{head}.transform.LayerNorm.bias": _drawn(random, WIDTH),
        f"{head}.bias": _drawn(random, words) - 1,
    }
    if not tied:
        weights[f"{head}.decoder.weight"] = _drawn(random, words, WIDTH)
        weights[f"{head}.decoder.bias"] = _drawn(random, words) - 1
    _add(folder, weights)
    _configure(folder, architectures=["BertForMaskedLM"], tie_word_embeddings=tied)
    return msgspec.structs.replace(
        facts, kinds=("sparse",), sparse=sparse or Sparse(), dims=0, matryoshka=(), pooling="none", normalize=False
    )


def tiny_looked_up(folder: Path) -> Facts:
    """A sparse model whose queries are looked up: of the words that have a letter "a" in them, 1.5 each."""
    facts = tiny_sparse(folder, sparse=Sparse(queries="table", table="idf.json"))
    words = tiny_tokenizer().get_vocab()
    (folder / "idf.json").write_text(json.dumps({word: 1.5 for word in words if "a" in word and "[" not in word}))
    return facts


def tiny_multivector(folder: Path, kinds: Sequence[Literal["dense", "multivector"]] = (), **asked: Any) -> Facts:
    """A ColBERT model. `asked` are fields of MultiVector."""
    facts = tiny_encoder(folder)
    _write_layer(folder / "1_Dense", TOKEN_DIMS, WIDTH, bias=False)
    multivector = MultiVector(
        **{
            "dims": TOKEN_DIMS, "projection": (Dense("1_Dense"),), "query_tokens": 12, "document_tokens": 40,
            "query_marker": "[UNK]", "document_marker": ".", "skip": (",", ";", "%"), **asked,
        }
    )  # fmt: skip
    return msgspec.structs.replace(
        facts, tasks=("encode", "score"), kinds=tuple(kinds) or ("multivector",), multivector=multivector
    )


def tiny_classifier(folder: Path, labels: Sequence[str] = ("contradiction", "entailment", "neutral")) -> Facts:
    """A cross-encoder with several labels."""
    facts = tiny_reranker(folder)
    _add(folder, _linear(np.random.default_rng(2), "classifier", len(labels), WIDTH))
    _configure(folder, id2label=dict(enumerate(labels)), label2id={name: i for i, name in enumerate(labels)})
    return msgspec.structs.replace(facts, labels=tuple(labels), activation="softmax")


def _write_layer(folder: Path, out: int, width: int, *, bias: bool) -> None:
    """As sentence-transformers saves a Dense module, weights that differ by folder."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = _linear(np.random.default_rng(out + width), "linear", out, width)
    if not bias:
        del weights["linear.bias"]
    save_file(weights, folder / "model.safetensors")
    config = {"in_features": width, "out_features": out, "bias": bias}
    (folder / "config.json").write_text(json.dumps(config))


def _add(folder: Path, weights: Mapping[str, NDArray[np.float32]]) -> None:
    path = folder / "model.safetensors"
    save_file({**load_file(path), **weights}, path, metadata={"format": "pt"})


def _configure(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _linear(random: np.random.Generator, name: str, rows: int, columns: int) -> Weights:
    return {f"{name}.weight": _drawn(random, rows, columns), f"{name}.bias": _drawn(random, rows)}


def _drawn(random: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return (0.2 * random.standard_normal(shape)).astype(np.float32)
