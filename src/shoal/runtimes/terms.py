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
    """Terms b · (a · x) beside the product that gives the rows of `parts`, all equally many; `width` is that of x.

    Its inputs `a` [parts, columns, width] and `b` [parts, columns, rows] hold the factors of some adapters, side
    by side; those of a single part have no first dimension.
    """

    parts: tuple[Part, ...]
    width: int
    of_texts: bool

    @property
    def mask(self) -> str:
        return TEXTS if self.of_texts else TOKENS

    @property
    def rows(self) -> int:
        return self.parts[0].rows

    @property
    def a(self) -> str:
        return f"{self.parts[0].name}.{self.parts[0].first}.a"

    @property
    def b(self) -> str:
        return f"{self.parts[0].name}.{self.parts[0].first}.b"


class TermOps(Protocol):
    """What an engine's `Ops` have besides, to put terms together."""

    def product(self, x: Node, weight: Array, bias: Array | None) -> Node:
        """The linear as its checkpoint has it."""
        ...

    def term(self, x: Node, place: Place) -> Node:
        """[n, width] → [n, rows of all parts]: what the place's inputs add. A row of x meets the factors in those
        columns that its row of the mask names, whatever the others hold."""
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
        adapted = [part for part in parts if part.name in self.targets]
        if not adapted:
            return ops.product(x, weight, bias)
        if len(adapted) == len(parts) and len({part.rows for part in parts}) == 1:
            return ops.add(ops.product(x, weight, bias), ops.term(x, self._placed(parts, width, of_texts)))
        # Apart, so that the rows that no adapter changes cost nothing more.
        done, start = [], 0
        for part in parts:
            rows = slice(start, start + part.rows)
            y = ops.product(x, weight[rows], None if bias is None else bias[rows])
            is_adapted = part.name in self.targets
            done.append(ops.add(y, ops.term(x, self._placed([part], width, of_texts))) if is_adapted else y)
            start += part.rows
        return ops.joined(done)

    def _placed(self, parts: Sequence[Part], width: int, of_texts: bool) -> Place:
        self.places.append(Place(tuple(parts), width, of_texts))
        return self.places[-1]
