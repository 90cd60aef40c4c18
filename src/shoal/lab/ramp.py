"""Which loads are tried, as a person writes them: `1,8,32` are those three, `1..256` grow until the knee."""

import itertools
from collections.abc import Iterator

import msgspec

from shoal.lab.knee import Kind
from shoal.protocol.errors import InvalidInput

GROWTH: dict[Kind, float] = {"connections": 2.0, "rate": 1.5}
MOST: dict[Kind, float] = {"connections": 4096, "rate": 1e6}


class Loads(msgspec.Struct, frozen=True):
    """`chosen` loads, or those from `start` to `end`, each `GROWTH` times the last, as far as they are needed."""

    kind: Kind
    chosen: tuple[float, ...] = ()
    start: float = 1
    end: float = 0

    @property
    def is_ramp(self) -> bool:
        """Whether it may stop when the knee is found; chosen loads are all measured."""
        return not self.chosen

    def __iter__(self) -> Iterator[float]:
        if self.chosen:
            yield from self.chosen
            return
        end = self.end or MOST[self.kind]
        for step in itertools.count():
            load = self.start * GROWTH[self.kind] ** step
            if load > end:
                return
            yield round(load) if self.kind == "connections" else float(f"{load:.3g}")


def parse_loads(text: str, kind: Kind) -> Loads:
    """Raises InvalidInput for what is no such list or range."""
    try:
        if ".." in text:
            start, end = text.split("..")
            loads = Loads(kind, start=_load(start, kind), end=_load(end, kind) if end else 0)
            if loads.end and loads.end < loads.start:
                raise ValueError
            return loads
        return Loads(kind, tuple(sorted({_load(part, kind) for part in text.split(",")})))
    except ValueError as e:
        raise InvalidInput(f"{text!r} says no {kind}: write 1,8,32 or 1..256 or 1..") from e


def _load(text: str, kind: Kind) -> float:
    load: float = int(text) if kind == "connections" else float(text)
    if not 0 < load <= MOST[kind]:
        raise ValueError(text)
    return load
