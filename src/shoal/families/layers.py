"""What the transformer families are put together from: layers fed by the weights of one checkpoint.

Knows weights by the names it is given and how to refuse what does not fit; not which family has which layers.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from shoal.families import Network, Node, Ops, Part, Words
from shoal.families.weights import Checkpoint
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts
from shoal.protocol.tensors import Array

_GELU_IS_TANH = {"gelu": False, "gelu_new": True, "gelu_pytorch_tanh": True}
_ACTIVATIONS = (*_GELU_IS_TANH, "relu", "silu")


class Names(msgspec.Struct, frozen=True):
    """What a layer's weights are called below its own name. As they stand here: BERT's names."""

    qkv: Sequence[str] = ("attention.self.query", "attention.self.key", "attention.self.value")
    mixed: str = "attention.output.dense"
    attention_norm: str = "attention.output.LayerNorm"
    inner: str = "intermediate.dense"
    outer: str = "output.dense"
    norm: str = "output.LayerNorm"


class Layers(Network):
    """`width` of the token states, `eps` of the norms. All methods raise ModelLoadFailed, the weight named."""

    def __init__(
        self, ops: Ops, checkpoint: Checkpoint, *, width: int, heads: int, eps: float, activation: str
    ) -> None:
        if not (isinstance(eps, int | float) and 0 <= eps < 1):
            raise ModelLoadFailed(f"config.json says {eps!r} as what norms add to a variance")
        if width % heads:
            raise ModelLoadFailed(f"{heads} heads do not divide a width of {width}")
        if activation not in _ACTIVATIONS:
            raise ModelLoadFailed(f"activation {activation!r} is not known; known: {', '.join(_ACTIVATIONS)}")
        self.ops, self.checkpoint = ops, checkpoint
        self.width, self.heads, self.eps, self.activation = width, heads, eps, activation

    def linear(self, x: Node, name: str, out: int = -1, *, bias: bool = True, of_texts: bool = False) -> Node:
        """[n, any] → [n, out]; -1 takes as many as the weight has. `of_texts`: a row of x is no token."""
        weight = self.checkpoint.weight(f"{name}.weight", out, -1)
        offset = self.checkpoint.weight(f"{name}.bias", len(weight)) if bias else None
        return self.ops.linear(x, weight, offset, [Part(name, 0, len(weight))], of_texts=of_texts)

    def joined(self, x: Node, names: Sequence[str], *, bias: bool = True) -> Node:
        """Linears from width to width as one product, their outputs side by side."""
        weights = [self.checkpoint.weight(f"{name}.weight", self.width, self.width) for name in names]
        biases = [self.checkpoint.weight(f"{name}.bias", self.width) for name in names] if bias else []
        parts = [Part(name, 0, self.width) for name in names]
        return self.ops.linear(x, np.concatenate(weights), np.concatenate(biases) if bias else None, parts)

    def halves(self, x: Node, name: str, *, bias: bool = True) -> tuple[Node, Node]:
        """One weight as two linears: its upper rows', its lower rows' output."""
        weight = self.checkpoint.weight(f"{name}.weight", -1, self.width)
        offset = self.checkpoint.weight(f"{name}.bias", len(weight)) if bias else None
        n = len(weight) // 2
        parts = Part(name, 0, n), Part(name, n, len(weight) - n)
        upper = self.ops.linear(x, weight[:n], None if offset is None else offset[:n], parts[:1])
        return upper, self.ops.linear(x, weight[n:], None if offset is None else offset[n:], parts[1:])

    def norm(self, x: Node, name: str, *, bias: bool = True) -> Node:
        weight = self.checkpoint.weight(f"{name}.weight", self.width)
        offset = self.checkpoint.weight(f"{name}.bias", self.width) if bias else None
        return self.ops.norm(x, weight, offset, self.eps)

    def activated(self, x: Node, activation: str = "") -> Node:
        """The model's own activation unless another is named."""
        activation = activation or self.activation
        if activation == "relu":
            return self.ops.relu(x)
        if activation == "silu":
            return self.ops.multiply(x, self.ops.sigmoid(x))
        return self.ops.gelu(x, tanh=_GELU_IS_TANH[activation])

    def post_norm(self, x: Node, layer: str, names: Names, look: Node | None = None) -> Node:
        """One layer whose residuals are normed after they are added, as in arXiv:1706.03762."""
        qkv = self.joined(x, [f"{layer}.{name}" for name in names.qkv])
        seen = self.linear(self.ops.attention(qkv, self.heads, look), f"{layer}.{names.mixed}", self.width)
        x = self.norm(self.ops.add(seen, x), f"{layer}.{names.attention_norm}")
        inner = self.activated(self.linear(x, f"{layer}.{names.inner}"))
        outer = self.linear(inner, f"{layer}.{names.outer}", self.width)
        return self.norm(self.ops.add(outer, x), f"{layer}.{names.norm}")

    def classified(self, x: Node, dense: str, activation: str, out: str, labels: int) -> Node:
        """Two linears with an activation between them: x [texts, width] → [texts, labels]."""
        inner = self.linear(x, dense, self.width, of_texts=True)
        inner = self.ops.tanh(inner) if activation == "tanh" else self.activated(inner, activation)
        return self.linear(inner, out, labels, of_texts=True)

    def predicted(self, x: Node, dense: str, norm: str, decoder: str, bias: str, activation: str = "") -> Words:
        """A masked-language-model head. Without a `decoder` of its own it has the table of the words; where the
        file has a bias of the decoder too, that is the one in use."""
        tied = f"{decoder}.weight" not in self.checkpoint
        table = "embeddings.word_embeddings.weight" if tied else f"{decoder}.weight"
        size = self.checkpoint.count("vocab_size")
        return Words(
            states=self.norm(self.activated(self.linear(x, dense, self.width), activation), norm),
            weight=self.checkpoint.weight(table, size, self.width),
            bias=self.checkpoint.weight(own if (own := f"{decoder}.bias") in self.checkpoint else bias, size),
        )

    def words_of_ids(self, name: str = "embeddings.word_embeddings.weight") -> Node:
        """The rows of the token ids. A lookup past the end would be undefined, so the table has to have as many
        rows as config.json says; so for `table`."""
        return self.ops.words(self.checkpoint.table(name, self.checkpoint.count("vocab_size"), self.width))

    def table(self, kind: str, size: str) -> Array:
        rows = self.checkpoint.count(size)
        return self.checkpoint.weight(f"embeddings.{kind}_embeddings.weight", rows, self.width)


def check_kind(checkpoint: Checkpoint, family: str, kinds: Sequence[str]) -> None:
    """Raises ModelLoadFailed where config.json speaks of another kind of model, or of a decoder."""
    kind = checkpoint.setting("model_type", family)
    if kind not in kinds or checkpoint.setting("is_decoder", False):
        what = f"a {kind} that is a decoder" if kind in kinds else f"a {kind}"
        raise ModelLoadFailed(f"family {family} computes {', '.join(kinds)}, and cannot compute {what}")


def check_length(facts: Facts, positions: int) -> None:
    """Raises ModelLoadFailed where texts may be longer than the positions that the model has."""
    if facts.max_tokens > positions:
        raise ModelLoadFailed(f"max_tokens is {facts.max_tokens}, but the model has {positions} positions")
