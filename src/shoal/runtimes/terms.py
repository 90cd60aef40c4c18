"""Where adapters' low-rank terms stand in a graph: beside which linears, and what their inputs are called.

Put together from an engine's own operations, so that every back end of `Ops` has them alike. Knows no factors:
those are the graph's inputs (stack.py).
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from shoal.families import Node, Part
from shoal.protocol.tensors import Array

TOKENS, TEXTS = "adapted.tokens", "adapted.texts"
"""Inputs [tokens, columns] and [texts, columns], boolean: whose factors stand in a column."""


class Place(NamedTuple):
    """A term b · (a · x) beside the product that gives the rows of `part`; `width` is that of x.

    Its inputs `a` [columns, width] and `b` [columns, rows] hold the factors of some adapters, side by side.
    """

    part: Part
    width: int
    of_texts: bool

    @property
    def mask(self) -> str:
        return TEXTS if self.of_texts else TOKENS

    @property
    def a(self) -> str:
        return f"{self.part.name}.{self.part.first}.a"

    @property
    def b(self) -> str:
        return f"{self.part.name}.{self.part.first}.b"


class TermOps(Protocol):
    """What an engine's `Ops` have besides, to put terms together."""

    def product(self, x: Node, weight: Array, bias: Array | None) -> Node:
        """The linear as its checkpoint has it."""
        ...

    def term(self, x: Node, place: Place) -> Node:
        """[n, width] → [n, rows]: what the place's inputs add. A row of x meets the factors in those columns that
        its row of the mask names, whatever the others hold."""
        ...

    def joined(self, parts: Sequence[Node]) -> Node:
        """[n, any] side by side."""
        ...

    def add(self, a: Node, b: Node) -> Node: ...


class Terms:
    """`targets`: which linears have terms, by their checkpoint's names. As a network is described, `places` fills
    with those, and `sites` with all that could have them."""

    def __init__(self, targets: Collection[str] = ()) -> None:
        self.targets = frozenset(targets)
        self.places: list[Place] = []
        self.sites: list[tuple[Part, int]] = []
        """And of what width their inputs are."""

    def linear(
        self, ops: TermOps, x: Node, weight: Array, bias: Array | None, parts: Sequence[Part], of_texts: bool
    ) -> Node:
        width = weight.shape[1]
        self.sites += [(part, width) for part in parts]
        places = [Place(part, width, of_texts) if part.name in self.targets else None for part in parts]
        there = [place for place in places if place is not None]
        self.places += there
        if not there:
            return ops.product(x, weight, bias)
        if len(there) == len(parts):
            terms = ops.joined([ops.term(x, place) for place in there])
            return ops.add(ops.product(x, weight, bias), terms)
        # Apart, so that the rows that no adapter changes cost nothing more.
        done, start = [], 0
        for part, place in zip(parts, places, strict=True):
            rows = slice(start, start + part.rows)
            y = ops.product(x, weight[rows], None if bias is None else bias[rows])
            done.append(y if place is None else ops.add(y, ops.term(x, place)))
            start += part.rows
        return ops.joined(done)
