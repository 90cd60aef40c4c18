"""BERT: encoders, cross-encoders that score a pair, and masked language models.

Follows Devlin et al., arXiv:1810.04805: learned absolute positions, segments, a norm after every residual.
"""

from pathlib import Path

import numpy as np

from shoal.families import Network, Node, Ops, Reader, Words
from shoal.families.tokenize import TextReader, load_tokenizer
from shoal.families.weights import Checkpoint, read_json
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts
from shoal.protocol.tensors import Array

_GELU_IS_TANH = {"gelu": False, "gelu_new": True, "gelu_pytorch_tanh": True}


class Bert:
    def open_reader(self, folder: Path, facts: Facts) -> Reader:
        reader = TextReader(load_tokenizer(folder), facts)
        if facts.files == "safetensors":
            known = read_json(folder / "config.json").get("vocab_size", 0)
            if reader.vocabulary > known:
                raise ModelLoadFailed(f"the tokenizer has {reader.vocabulary} tokens, the model only {known}")
        return reader

    def network(self, ops: Ops, checkpoint: Checkpoint, facts: Facts) -> Network:
        return _Network(ops, checkpoint, facts)


FAMILY = Bert()


class _Network(Network):
    """The layers of one checkpoint, under the names that its weights have."""

    def __init__(self, ops: Ops, checkpoint: Checkpoint, facts: Facts) -> None:
        self.ops = ops
        self.checkpoint = checkpoint
        self.width: int = checkpoint.setting("hidden_size")
        self.layers: int = checkpoint.setting("num_hidden_layers")
        self.heads: int = checkpoint.setting("num_attention_heads")
        self.eps: float = checkpoint.setting("layer_norm_eps", 1e-12)
        self.activation: str = checkpoint.setting("hidden_act", "gelu")
        self._check(facts)

    def _check(self, facts: Facts) -> None:
        kind = self.checkpoint.setting("model_type", "bert")
        positions = self.checkpoint.setting("position_embedding_type", "absolute")
        limit = self.checkpoint.setting("max_position_embeddings")
        if kind != "bert" or positions != "absolute" or self.checkpoint.setting("is_decoder", False):
            raise ModelLoadFailed(f"family bert cannot compute a {kind} with {positions} positions")
        if self.activation not in (*_GELU_IS_TANH, "relu"):
            raise ModelLoadFailed(f"family bert has no activation {self.activation!r}")
        if self.width % self.heads:
            raise ModelLoadFailed(f"{self.heads} heads do not divide a width of {self.width}")
        if facts.max_tokens > limit:
            raise ModelLoadFailed(f"max_tokens is {facts.max_tokens}, but the model has {limit} positions")
        if "score" in facts.tasks and self.checkpoint.setting("type_vocab_size") < 2:
            raise ModelLoadFailed("a model that scores pairs needs two segments, this one has one")

    def states(self) -> Node:
        x = self._embedded()
        for layer in range(self.layers):
            x = self._layer(x, f"encoder.layer.{layer}")
        return x

    def logits(self, states: Node, labels: int) -> Node:
        pooled = self.ops.tanh(self._linear(self.ops.pool(states, "cls"), "pooler.dense", self.width))
        return self._linear(pooled, "classifier", labels)

    def words(self, states: Node) -> Words:
        head = "cls.predictions"
        x = self._activate(self._linear(states, f"{head}.transform.dense", self.width))
        tied = f"{head}.decoder.weight" not in self.checkpoint
        table = "embeddings.word_embeddings.weight" if tied else f"{head}.decoder.weight"
        tokens = self.checkpoint.setting("vocab_size")
        return Words(
            states=self._norm(x, f"{head}.transform.LayerNorm"),
            weight=self.checkpoint.weight(table, tokens, self.width),
            bias=self.checkpoint.weight(f"{head}.bias", tokens),
        )

    def _embedded(self) -> Node:
        ops = self.ops
        words = ops.rows(self._table("word", "vocab_size"), ops.ids)
        positions = ops.rows(self._table("position", "max_position_embeddings"), ops.positions)
        segments = ops.rows(self._table("token_type", "type_vocab_size"), ops.segments)
        return self._norm(ops.add(ops.add(words, segments), positions), "embeddings.LayerNorm")

    def _layer(self, x: Node, name: str) -> Node:
        ops, width = self.ops, self.width
        qkv = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        weight = np.concatenate([self.checkpoint.weight(f"{part}.weight", width, width) for part in qkv])
        bias = np.concatenate([self.checkpoint.weight(f"{part}.bias", width) for part in qkv])
        seen = ops.attention(ops.linear(x, weight, bias), self.heads)
        seen = self._linear(seen, f"{name}.attention.output.dense", width)
        x = self._norm(ops.add(seen, x), f"{name}.attention.output.LayerNorm")
        inner = self._activate(self._linear(x, f"{name}.intermediate.dense", -1))
        inner = self._linear(inner, f"{name}.output.dense", width)
        return self._norm(ops.add(inner, x), f"{name}.output.LayerNorm")

    def _table(self, kind: str, size: str) -> Array:
        """A lookup past its end would be undefined, so it has to have the rows that config.json says."""
        rows = self.checkpoint.setting(size)
        return self.checkpoint.weight(f"embeddings.{kind}_embeddings.weight", rows, self.width)

    def _linear(self, x: Node, name: str, width: int) -> Node:
        """`width` of the output; -1 takes the weight's own."""
        weight = self.checkpoint.weight(f"{name}.weight", width, -1)
        return self.ops.linear(x, weight, self.checkpoint.weight(f"{name}.bias", len(weight)))

    def _norm(self, x: Node, name: str) -> Node:
        weight = self.checkpoint.weight(f"{name}.weight", self.width)
        return self.ops.norm(x, weight, self.checkpoint.weight(f"{name}.bias", self.width), self.eps)

    def _activate(self, x: Node) -> Node:
        if self.activation == "relu":
            return self.ops.relu(x)
        return self.ops.gelu(x, tanh=_GELU_IS_TANH[self.activation])
