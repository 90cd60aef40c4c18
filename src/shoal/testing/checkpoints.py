"""Tiny checkpoints with random weights, in the files that transformers writes, made without PyTorch. For tests
where no real model is small enough, or to be had: the outputs mean nothing, but are to be the reference's own.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from shoal.protocol.facts import Activation, Facts, Pooling

WIDTH, HEADS, LAYERS, INNER, POSITIONS = 32, 4, 2, 64, 64
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_WORDS = "the a of and in is paris london berlin capital france fish shoal swim small model word"

Weights = dict[str, NDArray[np.float32]]


def tiny_encoder(folder: Path, *, pooling: Pooling = "mean", normalize: bool = True, seed: int = 0) -> Facts:
    """A BERT encoder as sentence-transformers saves it."""
    weights = _bert(np.random.default_rng(seed))
    write_bert(folder, weights, "BertModel")
    kinds = ["Transformer", "Pooling"] + ["Normalize"] * normalize
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": f"{i}_{kind}" if i else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(kinds)
    ]
    _write_json(folder / "modules.json", modules)
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {"pooling_mode_cls_token": pooling == "cls", "pooling_mode_mean_tokens": pooling == "mean"}
    _write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": WIDTH, **modes})
    _write_json(folder / "sentence_bert_config.json", {"max_seq_length": POSITIONS, "do_lower_case": False})
    return Facts(
        tasks=("encode",), family="bert", files="safetensors", max_tokens=POSITIONS,
        dims=WIDTH, matryoshka=(WIDTH // 2,), pooling=pooling, normalize=normalize,
    )  # fmt: skip


def tiny_reranker(folder: Path, *, activation: Activation = "identity", seed: int = 0) -> Facts:
    """A BERT cross-encoder, its weights under the names that BertForSequenceClassification gives them."""
    random = np.random.default_rng(seed)
    weights = {f"bert.{name}": weight for name, weight in _bert(random).items()}
    weights |= _linear(random, "bert.pooler.dense", WIDTH, WIDTH) | _linear(random, "classifier", 1, WIDTH)
    write_bert(folder, weights, "BertForSequenceClassification", id2label={"0": "LABEL_0"})
    return Facts(tasks=("score",), family="bert", files="safetensors", max_tokens=POSITIONS, activation=activation)


def write_bert(
    folder: Path, weights: Mapping[str, NDArray[np.float32]], architecture: str, **config: object
) -> None:
    """model.safetensors, config.json and the tokenizer's two files. `config` overrides."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(dict(weights), folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer = tiny_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "BertTokenizer", "model_max_length": POSITIONS, "do_lower_case": True,
            **{f"{marker[1:-1].lower()}_token": marker for marker in _SPECIAL},
        },
    )  # fmt: skip
    settings = {
        "architectures": [architecture], "model_type": "bert", "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "intermediate_size": INNER, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
        "max_position_embeddings": POSITIONS, "type_vocab_size": 2,
    }  # fmt: skip
    _write_json(folder / "config.json", settings | config)


def tiny_tokenizer(*, pad: int = 0) -> Tokenizer:
    """WordPiece over a few words, the letters and digits; truncation and padding set, as published files have.

    `pad` is the id of [PAD]: 0 as in BERT's, 1 as in RoBERTa's.
    """
    special = [*_SPECIAL[1 : pad + 1], _SPECIAL[0], *_SPECIAL[pad + 1 :]]
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = [*special, *_WORDS.split(), *letters, *(f"##{letter}" for letter in letters), *".,;:!?'()-鱼群"]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.add_special_tokens(special)
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    markers = [(marker, vocabulary[marker]) for marker in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=markers
    )
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    return tokenizer


def _bert(random: np.random.Generator) -> Weights:
    tokens = tiny_tokenizer().get_vocab_size()
    weights: Weights = {}
    for name, rows in (("word", tokens), ("position", POSITIONS), ("token_type", 2)):
        weights[f"embeddings.{name}_embeddings.weight"] = _drawn(random, rows, WIDTH)
    weights |= _norm(random, "embeddings.LayerNorm")
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            weights |= _linear(random, f"{name}.attention.{part}", WIDTH, WIDTH)
        weights |= _norm(random, f"{name}.attention.output.LayerNorm")
        weights |= _linear(random, f"{name}.intermediate.dense", INNER, WIDTH)
        weights |= _linear(random, f"{name}.output.dense", WIDTH, INNER)
        weights |= _norm(random, f"{name}.output.LayerNorm")
    return weights


def _linear(random: np.random.Generator, name: str, rows: int, columns: int) -> Weights:
    return {f"{name}.weight": _drawn(random, rows, columns), f"{name}.bias": _drawn(random, rows)}


def _norm(random: np.random.Generator, name: str) -> Weights:
    return {f"{name}.weight": 1 + _drawn(random, WIDTH), f"{name}.bias": _drawn(random, WIDTH)}


def _drawn(random: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    """Wide enough that attention and norms matter."""
    return (0.2 * random.standard_normal(shape)).astype(np.float32)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1))
