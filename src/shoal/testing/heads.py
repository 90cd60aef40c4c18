"""Heads with random weights, put on a tiny BERT (checkpoints.py) in the files that publishers write them to."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from shoal.protocol.facts import Dense, Facts, Kind, MultiVector, Sparse
from shoal.testing.checkpoints import WIDTH, tiny_encoder, tiny_reranker, tiny_tokenizer

Weights = dict[str, NDArray[np.float32]]
TOKEN_DIMS = 16
_ACTIVATIONS = {
    "identity": "linear.Identity", "tanh": "activation.Tanh", "relu": "activation.ReLU",
    "gelu": "activation.GELU", "sigmoid": "activation.Sigmoid", "silu": "activation.SiLU",
}  # fmt: skip
_TRANSFORMER = "sentence_transformers.base.modules.transformer.Transformer"


def tiny_dense(folder: Path, layers: Sequence[tuple[int, str]] = ((48, "tanh"), (24, "identity"))) -> Facts:
    """An encoder with Dense modules after its pooling, each of a width and an activation."""
    facts = tiny_encoder(folder)
    dense, width = [], WIDTH
    for number, (out, activation) in enumerate(layers, 2):
        name = f"{number}_Dense"
        _write_layer(folder / name, out, width, bias=number % 2 == 0, activation=activation)
        dense.append(msgspec.convert({"folder": name, "activation": activation}, Dense))
        width = out
    kinds = ["Transformer", "Pooling", *["Dense"] * len(layers), "Normalize"]
    types = [f"sentence_transformers.models.{kind}" for kind in kinds]
    _write_modules(folder, [(f"{i}_{kind}" if i else "", types[i]) for i, kind in enumerate(kinds)])
    return msgspec.structs.replace(facts, dense=tuple(dense), dims=width, matryoshka=(width // 2,))


def tiny_sparse(folder: Path, *, tied: bool = True, sparse: Sparse | None = None) -> Facts:
    """A SPLADE model: BERT with its masked-language-model head. About half of the words get a weight."""
    facts = tiny_encoder(folder)
    sparse = sparse or Sparse()
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
    _change(folder / "config.json", architectures=["BertForMaskedLM"], tie_word_embeddings=tied)
    _change(folder / "sentence_bert_config.json", transformer_task="fill-mask")
    _write(folder / "config_sentence_transformers.json", {"model_type": "SparseEncoder"})
    pooling = "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling"
    _write_modules(folder, [("", _TRANSFORMER), ("1_SpladePooling", pooling)])
    activation = "log1p_relu" if sparse.activation == "log1p_log1p_relu" else "relu"
    config = {"pooling_strategy": sparse.pooling, "activation_function": activation}
    _write(folder / "1_SpladePooling" / "config.json", config)
    return msgspec.structs.replace(
        facts, kinds=("sparse",), sparse=sparse, dims=0, matryoshka=(), pooling="none", normalize=False
    )


def tiny_looked_up(folder: Path) -> Facts:
    """A sparse model whose queries are looked up: of the words that have a letter "a" in them, 1.5 each."""
    facts = tiny_sparse(folder, sparse=Sparse(queries="table", table="idf.json"))
    static = "query_0_SparseStaticEmbedding"
    modules = "sentence_transformers.sparse_encoder.modules"
    types = {
        "": _TRANSFORMER, "1_SpladePooling": f"{modules}.splade_pooling.SpladePooling",
        static: f"{modules}.sparse_static_embedding.SparseStaticEmbedding",
    }  # fmt: skip
    structure = {"query": [static], "document": ["", "1_SpladePooling"]}
    _write(folder / "router_config.json", {"types": types, "structure": structure, "parameters": {}})
    _write_modules(folder, [("", "sentence_transformers.base.modules.router.Router")])
    words = tiny_tokenizer().get_vocab()
    _write(folder / "idf.json", {word: 1.5 for word in words if "a" in word and "[" not in word})
    return facts


def tiny_multivector(folder: Path, kinds: tuple[Kind, ...] = ("multivector",), **asked: Any) -> Facts:
    """A ColBERT model as PyLate saves it. `asked` are fields of MultiVector."""
    facts = tiny_encoder(folder)
    _write_layer(folder / "1_Dense", TOKEN_DIMS, WIDTH, bias=False)
    usual = MultiVector(
        dims=TOKEN_DIMS, projection=(Dense("1_Dense"),), query_tokens=12, document_tokens=40,
        query_marker="[UNK]", document_marker="[PAD]", skip=(",", ";", "%"),
    )  # fmt: skip
    said = msgspec.structs.replace(usual, **asked)
    _write_modules(folder, [("", _TRANSFORMER), ("1_Dense", "pylate.models.Dense.Dense")])
    config = {
        "model_type": "ColBERT", "query_prefix": said.query_marker, "document_prefix": said.document_marker,
        "query_length": said.query_tokens, "document_length": said.document_tokens,
        "do_query_expansion": said.expand, "attend_to_expansion_tokens": said.attend_to_expansion,
        "skiplist_words": said.skip,
    }  # fmt: skip
    _write(folder / "config_sentence_transformers.json", config)
    changes: dict[str, Any] = {"dims": 0, "matryoshka": (), "pooling": "none", "normalize": False}
    if "dense" in kinds:
        changes = {}
    return msgspec.structs.replace(facts, tasks=("encode", "score"), kinds=kinds, multivector=said, **changes)


def tiny_classifier(folder: Path, labels: Sequence[str] = ("contradiction", "entailment", "neutral")) -> Facts:
    """A cross-encoder with several labels."""
    facts = tiny_reranker(folder)
    _add(folder, _linear(np.random.default_rng(2), "classifier", len(labels), WIDTH))
    numbers = {name: i for i, name in enumerate(labels)}
    _change(folder / "config.json", id2label=dict(enumerate(labels)), label2id=numbers)
    return msgspec.structs.replace(facts, labels=tuple(labels), activation="softmax")


def _write_layer(folder: Path, out: int, width: int, *, bias: bool, activation: str = "identity") -> None:
    """As sentence-transformers saves a Dense module; weights that differ by shape."""
    weights = _linear(np.random.default_rng(out + width), "linear", out, width)
    if not bias:
        del weights["linear.bias"]
    function = f"torch.nn.modules.{_ACTIVATIONS[activation]}"
    config = {"in_features": width, "out_features": out, "bias": bias, "activation_function": function}
    _write(folder / "config.json", config)
    save_file(weights, folder / "model.safetensors")


def _write_modules(folder: Path, modules: Sequence[tuple[str, str]]) -> None:
    """Of each its path and its type."""
    told = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(modules)]
    _write(folder / "modules.json", told)


def _add(folder: Path, weights: Mapping[str, NDArray[np.float32]]) -> None:
    path = folder / "model.safetensors"
    save_file({**load_file(path), **weights}, path, metadata={"format": "pt"})


def _change(path: Path, **changes: object) -> None:
    _write(path, json.loads(path.read_text()) | changes)


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def _linear(random: np.random.Generator, name: str, rows: int, columns: int) -> Weights:
    return {f"{name}.weight": _drawn(random, rows, columns), f"{name}.bias": _drawn(random, rows)}


def _drawn(random: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return (0.2 * random.standard_normal(shape)).astype(np.float32)
