"""How a kind of model is fed, described and read. One file a family: a module here with a `FAMILY` is one.

A family describes its network once, against `Ops`; every engine in runtimes/ is a back end of them. It knows
files and operations, never an engine, a device, a job or a request. Called inside the runtime process.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from shoal.families.weights import Checkpoint
from shoal.protocol.errors import InvalidInput, ShoalError
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item
from shoal.protocol.tensors import Array

Node = Any
"""A value in an engine's graph; only that engine's back end looks inside."""


class Prepared(msgspec.Struct, frozen=True):
    """An item ready to compute: token ids and segment ids [tokens], and the item it came from."""

    item: Item
    ids: list[int]
    segments: list[int]
    truncated: bool = False

    @property
    def tokens(self) -> int:
        return len(self.ids)


class Ops(Protocol):
    """What encoders are described in. Activations are packed: [tokens, width], the texts of a batch one after
    another with no padding between them; only `attention` and the two poolings know where each text ends.
    """

    @property
    def ids(self) -> Node:
        """[tokens], good for `rows` alone: engines look the vocabulary's rows up outside their graph."""
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

    def linear(self, x: Node, weight: Array, bias: Array) -> Node:
        """x [n, in], weight [out, in], bias [out] → [n, out]."""
        ...

    def add(self, a: Node, b: Node) -> Node: ...

    def norm(self, x: Node, weight: Array, bias: Array, eps: float) -> Node:
        """Layer norm over the last axis."""
        ...

    def gelu(self, x: Node, *, tanh: bool) -> Node:
        """The exact form, or its tanh approximation."""
        ...

    def relu(self, x: Node) -> Node: ...

    def tanh(self, x: Node) -> Node: ...

    def attention(self, qkv: Node, heads: int) -> Node:
        """Every token of a text looks at all of that text: [tokens, 3 * width] → [tokens, width].

        `qkv` holds queries, keys and values side by side; the scale is 1 / √(width / heads).
        """
        ...

    def first(self, x: Node) -> Node:
        """The state of each text's first token: [tokens, width] → [texts, width]."""
        ...

    def mean(self, x: Node) -> Node:
        """The mean over each text's tokens: [tokens, width] → [texts, width]."""
        ...


class Reader(Protocol):
    def prepare(self, items: Sequence[Item]) -> list[Prepared | ShoalError]:
        """One entry per item, in order; an item that cannot be served gets its error. Raises nothing."""
        ...


class Family(Protocol):
    def open_reader(self, folder: Path, facts: Facts) -> Reader:
        """What turns items into inputs. Raises ModelLoadFailed."""
        ...

    def describe(self, ops: Ops, checkpoint: Checkpoint, facts: Facts) -> Node:
        """The whole network: [texts, dims] pooled states, or [texts, 1] logits for a model that scores.

        Raises ModelLoadFailed where the checkpoint is not what this family can compute.
        """
        ...


def family_named(name: str) -> Family:
    """Raises InvalidInput for a family that is not in this folder."""
    try:
        module = importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as e:
        raise InvalidInput(f"no family named {name!r} ({e})") from e
    family: Family | None = getattr(module, "FAMILY", None)
    if family is None:
        raise InvalidInput(f"no family named {name!r}")
    return family
