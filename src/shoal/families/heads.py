"""What is put on top of any family's encoder, read from the facts: the named outputs of its whole network.

Knows files and operations; what a row of each output becomes is said in finish.py.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from shoal.families import Family, Node, Ops, Words
from shoal.families.linears import Linear, read_linears, through
from shoal.families.weights import Checkpoint
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts, Kind, Sparse

_WORDS_AT_ONCE = 4096
"""Logits of so many words are in memory at once for every token of a micro-batch."""


def describe(family: Family, ops: Ops, folder: Path, facts: Facts) -> dict[str, Node]:
    """ "score" [texts, labels] logits, or an output for each of the facts' kinds, none of them normalised:

    "dense" [texts, dims] · "sparse" [texts, vocabulary], before the log where it comes after a maximum ·
    "multivector" [tokens, dims], packed like the input.

    Raises ModelLoadFailed where the files do not hold what the facts say.
    """
    network = family.network(ops, Checkpoint(folder), facts)
    states = network.states()
    if facts.reads_pairs:
        return {"score": network.logits(states, max(1, len(facts.labels)))}
    heads: dict[Kind, Callable[[], Node]] = {
        "dense": lambda: through(ops, _pooled(ops, states, facts), read_linears(folder, facts.dense)),
        "sparse": lambda: _sparse(ops, sparse_facts(facts), network.words(states)),
        "multivector": lambda: through(ops, states, read_projection(folder, facts)),
    }
    return {kind: heads[kind]() for kind in facts.kinds}


def sparse_facts(facts: Facts) -> Sparse:
    """Raises ModelLoadFailed where there are none."""
    if facts.sparse is None:
        raise ModelLoadFailed("the facts do not say how sparse vectors are made")
    return facts.sparse


def read_projection(folder: Path, facts: Facts) -> Sequence[Linear]:
    """The layers between the tokens' states and their vectors. Raises ModelLoadFailed."""
    if facts.multivector is None:
        raise ModelLoadFailed("the facts do not say how the tokens' vectors are made")
    return read_linears(folder, facts.multivector.projection)


def _pooled(ops: Ops, states: Node, facts: Facts) -> Node:
    if facts.pooling == "none":
        raise ModelLoadFailed("an encoder needs a pooling, mean or cls for instance; its files name none")
    return ops.pool(states, facts.pooling)


def _sparse(ops: Ops, sparse: Sparse, words: Words) -> Node:
    starts = range(0, len(words.weight), _WORDS_AT_ONCE)
    return ops.concat([_some_words(ops, words, start, sparse) for start in starts])


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
