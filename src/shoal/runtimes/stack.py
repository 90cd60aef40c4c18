"""The factors of the adapters that one slot computes with, side by side as its graph's inputs want them.

One stack a slot, written between that slot's own passes: nothing that runs is ever written to. What stands there
from the passes before stays as long as its columns are not needed. Knows no engine.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.families import Part
from shoal.protocol.tensors import Array
from shoal.runtimes.terms import Place

COLUMNS = (16, 48, 64, 128, 256)
"""Engines keep kernels for every shape they have seen, and OpenVINO's for products of two inputs are large."""


class Held(NamedTuple):
    """An adapter in memory: for each part of a linear that it changes, a [rank, in] and b [rank, out], as the
    graph's inputs have them. `rank` is the greatest of them."""

    digest: str
    rank: int
    size_bytes: int
    factors: Mapping[Part, tuple[Array, Array]]


class Stack:
    """`wrap` makes an engine's input of rows of an array of `dtype`, without copying."""

    def __init__(self, places: Sequence[Place], dtype: Any, wrap: Callable[[Array], Any]) -> None:
        self._places, self._dtype, self._wrap = places, dtype, wrap
        self._columns = 0
        self._arrays: list[tuple[Place, Array, Array]] = []
        self._standing: dict[str, range] = {}
        self._inputs: dict[int, dict[str, Any]] = {}

    def arrange(self, adapters: Sequence[Held]) -> tuple[Array, dict[str, Any]]:
        """To which of `adapters` each column belongs, -1 for none, and the inputs of the graph's places."""
        columns = rounded_up(sum(adapter.rank for adapter in adapters))
        if columns > self._columns:
            self._grow(columns)
        places = arranged(self._standing, {adapter.digest: adapter.rank for adapter in adapters}, columns)
        new = [adapter for adapter in adapters if self._standing.get(adapter.digest) != places[adapter.digest]]
        for adapter in new:
            self._write(adapter, places[adapter.digest])
        owners = np.full(columns, -1, np.int32)
        for i, adapter in enumerate(adapters):
            where = places[adapter.digest]
            owners[where.start : where.stop] = i
        return owners, self._first(columns)

    def _first(self, columns: int) -> dict[str, Any]:
        if columns not in self._inputs:
            self._inputs[columns] = {
                name: self._wrap(array[:columns])
                for place, a, b in self._arrays
                for name, array in ((place.a, a), (place.b, b))
            }
        return self._inputs[columns]

    def _grow(self, columns: int) -> None:
        """Zeros, not whatever the memory held: the product with a column of nobody's has to be finite."""
        self._columns = columns
        self._standing, self._inputs = {}, {}
        self._arrays = [
            (p, np.zeros((columns, p.width), self._dtype), np.zeros((columns, p.part.rows), self._dtype))
            for p in self._places
        ]

    def _write(self, adapter: Held, where: range) -> None:
        """Zeros where it changes nothing, or has a lower rank than elsewhere."""
        self._standing = {
            digest: there
            for digest, there in self._standing.items()
            if there.stop <= where.start or where.stop <= there.start
        }
        self._standing[adapter.digest] = where
        start, stop = where.start, where.stop
        for place, a, b in self._arrays:
            factors = adapter.factors.get(place.part)
            written = start
            if factors is not None:
                written += len(factors[0])
                a[start:written], b[start:written] = factors
            if written < stop:
                a[written:stop] = b[written:stop] = 0


def rounded_up(columns: int) -> int:
    return next(size for size in COLUMNS if size >= columns)


def arranged(standing: Mapping[str, range], wanted: Mapping[str, int], columns: int) -> dict[str, range]:
    """Where each of `wanted` (how many columns it takes) is to stand among so many columns, which are enough.

    1. What stands among them stays.
    2. The others go into the gaps, the widest first.
    3. Where gaps are too narrow for one, all are put down anew.
    """
    kept = {name: standing[name] for name in wanted if name in standing and standing[name].stop <= columns}  # 1
    others = sorted((name for name in wanted if name not in kept), key=lambda name: -wanted[name])
    places = dict(kept)
    for name in others:  # 2
        gap = next((gap for gap in _gaps(places, columns) if len(gap) >= wanted[name]), None)
        if gap is None:
            return arranged({}, wanted, columns)  # 3
        places[name] = gap[: wanted[name]]
    return places


def _gaps(places: Mapping[str, range], columns: int) -> list[range]:
    gaps, start = [], 0
    for taken in sorted(places.values(), key=lambda place: place.start):
        gaps.append(range(start, taken.start))
        start = taken.stop
    return [*gaps, range(start, columns)]
