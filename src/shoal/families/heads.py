"""What is put on top of any family's encoder, read from the facts: the named outputs of its whole network.

Knows files and operations; what a row of each output becomes is said in finish.py.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from shoal.families import Family, Network, Node, Ops, Prepared
from shoal.families.linears import Linear, read_linears, through
from shoal.families.weights import Checkpoint
from shoal.families.words import Vocabulary
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts, Sparse
from shoal.protocol.tensors import Array


class Described(msgspec.Struct, frozen=True):
    """`outputs` of a graph by name; `vocabulary` where one of them is not final yet. `unused` are linears of the
    checkpoint that no output depends on, as name → (out, in): whatever changes them changes nothing here."""

    outputs: dict[str, Node]
    vocabulary: Vocabulary | None = None
    unused: dict[str, tuple[int, int]] = {}

    def without_graph(self) -> "Described":
        """The same once the graph is compiled: its nodes hold the weights a second time, in fp32."""
        return Described(dict.fromkeys(self.outputs), self.vocabulary, self.unused)

    def completed(self, found: Mapping[str, Array], batch: Sequence[Prepared]) -> dict[str, Array]:
        """What finish.py reads, of what a graph gave for `batch`."""
        if self.vocabulary is None:
            return dict(found)
        return {**found, "sparse": self.vocabulary.weights(found["sparse"], batch)}


def describe(family: Family, ops: Ops, folder: Path, facts: Facts) -> Described:
    """ "score" [texts, labels] logits, or an output for each of the facts' kinds, none of them normalised:

    "dense" [texts, dims] · "multivector" [tokens, dims], packed like the input · "sparse" [tokens, width], the
    states from which the vocabulary is weighed: [texts, vocabulary], and without the log of a maximum.

    Raises ModelLoadFailed where the files do not hold what the facts say.
    """
    checkpoint = Checkpoint(folder)
    described = _described(family.network(ops, checkpoint, facts), ops, folder, facts)
    unused = checkpoint.unused()
    unused.pop("linear", None)  # a projection that is kept in the model's own file
    checkpoint.let_go()
    return Described(described.outputs, described.vocabulary, unused)


def _described(network: Network, ops: Ops, folder: Path, facts: Facts) -> Described:
    states = network.states()
    if facts.reads_pairs:
        return Described({"score": network.logits(states, max(1, len(facts.labels)))})
    outputs, vocabulary = {}, None
    if "dense" in facts.kinds:
        outputs["dense"] = through(ops, _pooled(ops, states, facts), read_linears(folder, facts.dense))
    if "sparse" in facts.kinds:
        sparse, words = sparse_facts(facts), network.words(states)
        outputs["sparse"], vocabulary = words.states, Vocabulary(words, sparse)
    if "multivector" in facts.kinds:
        outputs["multivector"] = through(ops, states, read_projection(folder, facts))
    return Described(outputs, vocabulary)


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
