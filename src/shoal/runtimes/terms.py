"""Where adapters' low-rank terms stand in a graph: beside which linears, and what their inputs are called.

Put together from an engine's own operations, so that every back end of `Ops` has them alike. Knows no factors:
those are the graph's inputs (stack.py).
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from shoal.families import Node, Part
from shoal.protocol.tensors import Array


class Place(NamedTuple):
    """A term b · (a · x) beside one linear, whose x is of `width` and whose output of `rows`.

    Its inputs `a` [columns · parts, width] and `b` [columns · parts, rows] hold the factors of some adapters side
    by side. A column has one for each of the linear's `parts` that adapters change, each with where its rows begin
    in the output: b is 0 beside them.
    """

    parts: tuple[tuple[Part, int], ...]
    width: int
    rows: int
    of_texts: bool

    @property
    def mask(self) -> str:
        """Of tokens or texts · columns · parts, boolean: whose factors stand in a column."""
        return mask_named(self.of_texts, len(self.parts))

    @property
    def a(self) -> str:
        return f"{self._name}.a"

    @property
    def b(self) -> str:
        return f"{self._name}.b"

    @property
    def _name(self) -> str:
        part, _ = self.parts[0]
        return f"{part.name}.{part.first}"


def mask_named(of_texts: bool, parts: int) -> str:
    return f"{'texts' if of_texts else 'tokens'}.adapted.{parts}"


class TermOps(Protocol):
    """What an engine's `Ops` have besides, to put terms together."""

    def product(self, x: Node, weight: Array, bias: Array | None) -> Node:
        """The linear as its checkpoint has it."""
        ...

    def term(self, x: Node, place: Place) -> Node:
        """[n, width] → [n, rows]: what the place's inputs add. A row of x meets the factors in those columns that
        its row of the mask names, whatever the others hold."""
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
        y = ops.product(x, weight, bias)
        rows, width = weight.shape
        there, start = [], 0
        for part in parts:
            self.sites.append((part, width))
            if part.name in self.targets:
                there.append((part, start))
            start += part.rows
        if not there:
            return y
        place = Place(tuple(there), width, rows, of_texts)
        self.places.append(place)
        return ops.add(y, ops.term(x, place))
