"""Where more load stops being worth it: the knee of a curve of measured points. Pure.

**Over connections** (closed loop) the knee is the first load after which more is not worth while: a load r times
as heavy has no more than r^GROWTH times its throughput (doubled, a ninth more; differences up to NOISE are none),
for every heavier load measured, the heaviest at least SPAN times as heavy; and at one of them the median latency
has climbed to CLIMB times its own, or the share of failed requests by FAILED.

**Over rates** (open loop) it is the last load that is served: at least SERVED of what was offered came back good,
and no more than FAILED failed. At the next, the median latency or failures have climbed as above.

**With a latency target** it is the last load before the 99th percentile exceeds the target, or more than FAILED of
the requests fail; a single load that misses it between two that do not is taken for noise.

Where the curve has not come so far, there is no knee, and the reason is said.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

GROWTH = 0.15
NOISE = 1.05
SPAN = 1.5
CLIMB = 1.2
SERVED = 0.95
FAILED = 0.01

Kind = Literal["connections", "rate"]


class Point(msgspec.Struct, frozen=True):
    """One measured load. `offered` and `per_second` are requests a second, sent and answered well."""

    load: float
    per_second: float
    p50_s: float
    p99_s: float
    offered: float = 0.0
    failed: float = 0.0
    """Share of requests without a good answer, or of connections that wait as a refusal asked them to."""


class Knee(msgspec.Struct, frozen=True):
    """`place` is the knee's index among the points by ascending load; None where no knee was reached."""

    place: int | None
    why: str


def knee(points: Sequence[Point], kind: Kind = "connections", target_s: float = 0.0) -> Knee:
    """By the rule of `kind`, or by the latency target if there is one. Points in any order."""
    curve = sorted(points, key=lambda point: point.load)
    if len(curve) < 2:
        return Knee(None, "no knee reached: a knee takes at least two loads")
    if target_s:
        return _target(curve, target_s)
    return _connections(curve) if kind == "connections" else _rates(curve)


def _connections(curve: Sequence[Point]) -> Knee:
    for place, point in enumerate(curve):
        later = curve[place + 1 :]
        is_spanned = bool(later) and later[-1].load >= SPAN * point.load
        if point.per_second and is_spanned and not any(_gains(point, p) for p in later):
            if any(_strains(point, p) for p in later):
                return Knee(place, "more connections wait longer and bring little or nothing")
            return Knee(None, "no knee reached: throughput stands still, but so does latency")
    return Knee(None, "no knee reached: throughput still grows at the heaviest load")


def _rates(curve: Sequence[Point]) -> Knee:
    def is_served(point: Point) -> bool:
        return point.per_second >= SERVED * (point.offered or point.load) and point.failed <= FAILED

    served = [place for place, point in enumerate(curve) if is_served(point)]
    if not served:
        return Knee(None, "no knee reached: even the lightest rate is more than can be served")
    place = served[-1]
    if place == len(curve) - 1:
        return Knee(None, "no knee reached: the heaviest rate is still served")
    if not _strains(curve[place], curve[place + 1]):
        return Knee(None, "no knee reached: less comes back than is offered, but no later")
    return Knee(place, "the next rate is no longer served in full")


def _gains(light: Point, heavy: Point) -> bool:
    worth = max(NOISE, math.pow(heavy.load / light.load, GROWTH))
    return heavy.per_second > worth * light.per_second


def _strains(light: Point, heavy: Point) -> bool:
    return not heavy.p50_s < CLIMB * light.p50_s or heavy.failed > light.failed + FAILED


def _target(curve: Sequence[Point], target_s: float) -> Knee:
    def keeps(point: Point) -> bool:
        return point.p99_s <= target_s and point.failed <= FAILED

    kept = [keeps(point) for point in curve]
    for place in range(1, len(kept) - 1):
        kept[place] = kept[place] or (kept[place - 1] and kept[place + 1])
    limit = f"p99 within {target_s * 1e3:g} ms"
    if all(kept):
        return Knee(None, f"no knee reached: {limit} even at the heaviest load")
    if not kept[0]:
        return Knee(None, f"no load keeps {limit}")
    return Knee(kept.index(False) - 1, f"the heaviest load with {limit}")


def is_settled(points: Sequence[Point], find: Callable[[Sequence[Point]], Knee]) -> bool:
    """Whether a ramp may end: the knee is found, and was already without the heaviest load."""
    return find(points).place is not None and find(sorted(points, key=lambda p: p.load)[:-1]).place is not None
