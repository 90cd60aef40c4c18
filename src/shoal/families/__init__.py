"""How a kind of model is fed, described and read. One file a family: a module here with a `FAMILY` is one.

A family describes its network once, against `Ops`; every engine in runtimes/ is a back end of them. It knows
files and operations, never an engine, a device, a job or a request. Called inside the runtime process.
"""

import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from shoal.families.weights import Checkpoint, Table
from shoal.protocol.errors import InvalidInput, ModelLoadFailed, ShoalError
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item, Output
from shoal.protocol.tensors import Array

Node = Any
"""A value in an engine's graph; only that engine's back end looks inside."""
Over = Literal["cls", "last", "max", "sum", "mean", "mean_sqrt_len", "weighted_mean"]
"""How a text's tokens become one row: its first, its last, … `weighted_mean` weighs token n by n, from 1."""


class Prepared(msgspec.Struct, frozen=True):
    """An item ready to compute: token ids and segment ids [tokens], and the item it came from.

    No token looks at the last `unseen` ones, and no pooling counts them. `kept` are the places of the tokens
    that give a vector of their own; None for all.
    """

    item: Item
    ids: list[int]
    segments: list[int]
    truncated: bool = False
    unseen: int = 0
    kept: list[int] | None = None

    @property
    def tokens(self) -> int:
        return len(self.ids)


Read = Prepared | Output | ShoalError
"""What an item became: ready to compute, answered already (its tokens were all it asked for), or refused."""


class Part(NamedTuple):
    """Rows `first` … `first + rows` of the linear that its checkpoint calls `name`, without `.weight`."""

    name: str
    first: int
    rows: int


class Ops(Protocol):
    """What encoders are described in. Activations are packed: [tokens, width], the texts of a batch one after
    another with no padding between them; only `attention` and `pool` know where each text ends.
    """

    def words(self, table: Table) -> Node:
        """The rows of the texts' token ids: [tokens, width]. Engines look them up outside their graph."""
        ...

    @property
    def positions(self) -> Node:
        """[tokens], from 0 in each text. A family with an offset cuts its table instead."""
        ...

    @property
    def segments(self) -> Node:
        """[tokens], 0 or 1: which text of a pair."""
        ...

    def rows(self, table: Array, index: Node) -> Node:
        """table [n, width], index [tokens] → [tokens, width]."""
        ...

    def linear(
        self, x: Node, weight: Array, bias: Array | None, parts: Sequence[Part] = (), *, of_texts: bool = False
    ) -> Node:
        """x [n, in], weight [out, in], bias [out] → [n, out].

        `parts` says whose rows the weight's are, one below the other, where an adapter may change them; a row of
        x is then a token, or with `of_texts` a text.
        """
        ...

    def add(self, a: Node, b: Node) -> Node: ...

    def multiply(self, a: Node, b: Node) -> Node: ...

    def norm(self, x: Node, weight: Array, bias: Array | None, eps: float) -> Node:
        """Layer norm over the last axis."""
        ...

    def gelu(self, x: Node, *, tanh: bool) -> Node:
        """The exact form, or its tanh approximation."""
        ...

    def relu(self, x: Node) -> Node: ...

    def tanh(self, x: Node) -> Node: ...

    def sigmoid(self, x: Node) -> Node: ...

    def rotated(self, qkv: Node, heads: int, cos: Node, sin: Node) -> Node:
        """Queries and keys turned by their places, [tokens, 3 * width] → the same (arXiv:2104.09864).

        cos and sin [tokens, width / heads / 2]: number i of a head turns together with the one half a head on.
        """
        ...

    def within(self, reach: int) -> Node:
        """For `attention`: a token looks only at those at most `reach` places away."""
        ...

    def relative(self, table: Array) -> Node:
        """For `attention`: added to the scores by how far a key is from its query (arXiv:1803.02155).

        table [2 * reach + 1, heads], its middle for distance 0, its last row for `reach` places on and more.
        """
        ...

    def attention(self, qkv: Node, heads: int, look: Node | None = None) -> Node:
        """Every token of a text looks at all of that text, or as `within` or `relative` say:
        [tokens, 3 * width] → [tokens, width].

        `qkv` holds queries, keys and values side by side; the scale is 1 / √(width / heads).
        """
        ...

    def pool(self, x: Node, over: Over) -> Node:
        """One row a text, in fp32: [tokens, width] → [texts, width]."""
        ...


class Words(msgspec.Struct, frozen=True):
    """A masked-language-model head before its last product: logits are `states` · `weight`ᵀ + `bias`.

    Left undone, because all tokens' logits at once would be 100 times as large as their states.
    """

    states: Node
    """[tokens, width]"""
    weight: Array
    """[vocabulary, width]; often the table of the words itself."""
    bias: Array | None
    """[vocabulary]"""


class Network(Protocol):
    """One checkpoint's encoder, told piece by piece. What a family has not got it leaves as it is here.

    What is put on top (poolings, Dense layers, sparse and token vectors) is the same for all: heads.py.
    Every method raises ModelLoadFailed where the checkpoint is not what this family can compute.
    """

    width: int
    """Of a token's state."""

    def states(self) -> Node:
        """The last layer's states: [tokens, width]."""
        ...

    def logits(self, states: Node, labels: int) -> Node:
        """The family's own classifier of a text or pair: [tokens, width] → [texts, labels], not activated."""
        raise ModelLoadFailed("this family has no classifier, so it cannot score")

    def words(self, states: Node) -> Words:
        """The masked-language-model head, which says of each token what word might stand there."""
        raise ModelLoadFailed("this family has no masked-language-model head")


class Reader(Protocol):
    def prepare(self, items: Sequence[Item]) -> list[Read]:
        """One entry per item, in order; an item that cannot be served gets its error. Raises nothing."""
        ...


class Family(Protocol):
    model_types: Collection[str]
    """`model_type` of config.json, as transformers says it."""
    offset_positions: bool
    """Whether the first position is the padding's id plus one, so that many rows of the table are never used."""
    replaces_code: Collection[str]
    """Those of `model_types` that are published with code of their own; it is not run, this computes the same."""

    def open_reader(self, folder: Path, facts: Facts) -> Reader:
        """What turns items into inputs. Raises ModelLoadFailed."""
        ...

    def network(self, ops: Ops, checkpoint: Checkpoint, facts: Facts) -> Network:
        """Raises ModelLoadFailed where the checkpoint is not what this family can compute."""
        ...


@functools.cache
def all_families() -> dict[str, Family]:
    """By the name of their file."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    found = {name: getattr(importlib.import_module(f"{__name__}.{name}"), "FAMILY", None) for name in names}
    return {name: family for name, family in found.items() if family is not None}


def family_named(name: str) -> Family:
    """Raises InvalidInput for a family that is not in this folder."""
    module = f"{__name__}.{name}"
    known = name.isidentifier() and importlib.util.find_spec(module) is not None
    family: Family | None = getattr(importlib.import_module(module), "FAMILY", None) if known else None
    if family is None:
        raise InvalidInput(f"no family named {name!r}")
    return family
