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

COLUMNS = (64, 128, 256)
"""Engines keep kernels for every shape they have seen, and OpenVINO's for products of two inputs are large."""


class Lane(NamedTuple):
    """One of the two factors of a part: b, or a."""

    part: Part
    is_b: bool


class Block(NamedTuple):
    """Factors of one shape: [lanes, rank, width]. Held so, they are put into a stack at once; one by one that
    would take longer than computing some texts."""

    lanes: tuple[Lane, ...]
    rows: Array


class Held(NamedTuple):
    """An adapter in memory. `rank` is the greatest of its factors'."""

    digest: str
    rank: int
    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, digest: str, factors: Mapping[Part, tuple[Array, Array]]) -> "Held":
        """For each part of a linear that it changes, its a [rank, in] and b [rank, out], as the graph's inputs
        have them."""
        alike: dict[tuple[int, ...], list[tuple[Lane, Array]]] = {}
        for part, (a, b) in factors.items():
            alike.setdefault(a.shape, []).append((Lane(part, False), a))
            alike.setdefault(b.shape, []).append((Lane(part, True), b))
        blocks = [
            Block(tuple(lane for lane, _ in same), np.stack([rows for _, rows in same])) for same in alike.values()
        ]
        return cls(digest, max(rank for rank, _ in alike), tuple(blocks))

    @property
    def targets(self) -> set[str]:
        return {lane.part.name for block in self.blocks for lane in block.lanes}

    @property
    def size_bytes(self) -> int:
        return sum(block.rows.nbytes for block in self.blocks)


class Stack:
    """`wrap` makes an engine's input of rows of an array of `dtype`, without copying."""

    def __init__(self, places: Sequence[Place], dtype: Any, wrap: Callable[[Array], Any]) -> None:
        self._places, self._dtype, self._wrap = places, dtype, wrap
        self._lanes: dict[int, list[Lane]] = {}
        """All of one width."""
        for place in places:
            self._lanes.setdefault(place.width, []).extend(Lane(part, False) for part in place.parts)
            self._lanes.setdefault(place.rows, []).extend(Lane(part, True) for part in place.parts)
        self._at = {lane: i for lanes in self._lanes.values() for i, lane in enumerate(lanes)}
        self._memory: dict[int, Array] = {}
        self._largest = self._columns = 0
        self._rooms: dict[int, dict[int, Array]] = {}
        self._inputs: dict[int, dict[str, Any]] = {}
        self._standing: dict[str, range] = {}

    def arrange(self, adapters: Sequence[Held]) -> tuple[Array, dict[str, Any]]:
        """To which of `adapters` each column belongs, -1 for none, and the inputs of the graph's places."""
        columns = rounded_up(sum(adapter.rank for adapter in adapters))
        self._lay_out(columns)
        places = arranged(self._standing, {adapter.digest: adapter.rank for adapter in adapters}, columns)
        new = [adapter for adapter in adapters if self._standing.get(adapter.digest) != places[adapter.digest]]
        for adapter in new:
            self._write(adapter, places[adapter.digest])
        owners = np.full(columns, -1, np.int32)
        for i, adapter in enumerate(adapters):
            where = places[adapter.digest]
            owners[where.start : where.stop] = i
        return owners, self._inputs[columns]

    def _lay_out(self, columns: int) -> None:
        """The same memory for every number of columns. What another number left there is finite, and nobody's."""
        if columns == self._columns:
            return
        self._columns, self._standing = columns, {}
        if columns > self._largest:
            self._largest, self._rooms, self._inputs = columns, {}, {}
            self._memory = {
                width: np.zeros(len(lanes) * columns * width, self._dtype) for width, lanes in self._lanes.items()
            }
        if columns in self._rooms:
            return
        rooms = self._rooms[columns] = {
            width: memory[: len(self._lanes[width]) * columns * width].reshape(-1, columns, width)
            for width, memory in self._memory.items()
        }
        inputs = self._inputs[columns] = {}
        for place in self._places:
            for name, width, is_b in ((place.a, place.width, False), (place.b, place.rows, True)):
                first = self._at[Lane(place.parts[0], is_b)]
                rows = rooms[width][first : first + len(place.parts)]
                inputs[name] = self._wrap(rows if len(rows) > 1 else rows[0])

    def _write(self, adapter: Held, where: range) -> None:
        """Zeros where it changes nothing, or has a lower rank than elsewhere."""
        self._standing = {
            digest: there
            for digest, there in self._standing.items()
            if there.stop <= where.start or where.stop <= there.start
        }
        self._standing[adapter.digest] = where
        rooms, start = self._rooms[self._columns], where.start
        full = sum(len(block.lanes) for block in adapter.blocks if block.rows.shape[1] == len(where))
        if full < len(self._at):
            for room in rooms.values():
                room[:, start : where.stop] = 0
        for lanes, rows in adapter.blocks:
            room = rooms[rows.shape[2]][:, start : start + rows.shape[1]]
            places = [self._at[lane] for lane in lanes]
            first, stop = places[0], places[-1] + 1
            if places == list(range(first, stop)):
                room[first:stop] = rows
            else:
                room[places] = rows


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
