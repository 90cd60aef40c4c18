"""What is put on top of any family's encoder, read from the facts: the named outputs of its whole network.

Knows files and operations; what a row of each output becomes is said in finish.py.
"""

from collections.abc import Sequence
from pathlib import Path

from shoal.families import Family, Node, Ops, Words
from shoal.families.weights import Checkpoint
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Dense, Facts, Sparse

_WORDS_AT_ONCE = 4096
"""Logits of so many words are in memory at once for every token of a micro-batch."""


def describe(family: Family, ops: Ops, folder: Path, facts: Facts) -> dict[str, Node]:
    """ "score" [texts, labels] logits, or an output for each of the facts' kinds, none of them normalised:

    "dense" [texts, dims] · "sparse" [texts, vocabulary], before the log where it comes after a maximum ·
    "multivector" [tokens, dims], packed like the input.

    Raises ModelLoadFailed where the files do not hold what the facts say.
    """
    checkpoint = Checkpoint(folder)
    network = family.network(ops, checkpoint, facts)
    states = network.states()
    if "score" in facts.tasks:
        return {"score": network.logits(states, max(1, len(facts.labels)))}
    layers = _Layers(ops, folder, checkpoint)
    heads = {
        "dense": lambda: layers.apply(_pooled(ops, states, facts), network.width, facts.dense),
        "sparse": lambda: _sparse(ops, network.words(states), facts),
        "multivector": lambda: layers.apply(states, network.width, _projection(facts)),
    }
    return {kind: heads[kind]() for kind in facts.kinds}


def _pooled(ops: Ops, states: Node, facts: Facts) -> Node:
    if facts.pooling == "none":
        raise ModelLoadFailed("an encoder needs a pooling, mean or cls for instance; its files name none")
    return ops.pool(states, facts.pooling)


def _projection(facts: Facts) -> Sequence[Dense]:
    if facts.multivector is None:
        raise ModelLoadFailed("the facts do not say how the tokens' vectors are made")
    return facts.multivector.projection


def _sparse(ops: Ops, words: Words, facts: Facts) -> Node:
    if facts.sparse is None:
        raise ModelLoadFailed("the facts do not say how sparse vectors are made")
    starts = range(0, len(words.weight), _WORDS_AT_ONCE)
    return ops.concat([_some_words(ops, words, start, facts.sparse) for start in starts])


def _some_words(ops: Ops, words: Words, start: int, sparse: Sparse) -> Node:
    """The weights of a part of the vocabulary: [texts, part]. A maximum needs its log only of what is left."""
    part = slice(start, start + _WORDS_AT_ONCE)
    bias = None if words.bias is None else words.bias[part]
    logits = ops.relu(ops.linear(words.states, words.weight[part], bias))
    if sparse.pooling == "max":
        return ops.pool(logits, "max")
    for _ in range(sparse.activation.count("log1p")):
        logits = ops.log1p(logits)
    return ops.pool(logits, "sum")


class _Layers:
    """The linear layers that the facts name, each in a folder of its own or in the checkpoint itself."""

    def __init__(self, ops: Ops, folder: Path, checkpoint: Checkpoint) -> None:
        self._ops = ops
        self._folder = folder
        self._checkpoint = checkpoint

    def apply(self, x: Node, width: int, layers: Sequence[Dense]) -> Node:
        """x [n, width] through one after the other."""
        for layer in layers:
            weights = Checkpoint(self._folder / layer.folder) if layer.folder else self._checkpoint
            weight = weights.weight("linear.weight", -1, width)
            width = len(weight)
            bias = weights.weight("linear.bias", width) if "linear.bias" in weights else None
            x = _activated(self._ops, self._ops.linear(x, weight, bias), layer.activation)
        return x


def _activated(ops: Ops, x: Node, activation: str) -> Node:
    match activation:
        case "tanh":
            return ops.tanh(x)
        case "relu":
            return ops.relu(x)
        case "gelu":
            return ops.gelu(x, tanh=False)
        case "sigmoid":
            return ops.sigmoid(x)
        case "silu":
            return ops.multiply(x, ops.sigmoid(x))
    return x
