"""A call made again and again, and timed."""

import statistics
import time
from collections.abc import Callable

import msgspec


class Timed(msgspec.Struct, frozen=True):
    calls: int
    seconds: float
    median_s: float


def timed(call: Callable[[int], object], seconds: float, warm_up_s: float = 1.0) -> Timed:
    """`call` gets its turn's number. At least once it is timed, and once before that it is not."""
    turn = 0
    until = time.perf_counter() + warm_up_s
    while not turn or time.perf_counter() < until:
        call(turn)
        turn += 1
    took: list[float] = []
    while sum(took) < seconds:
        began = time.perf_counter()
        call(turn)
        took.append(time.perf_counter() - began)
        turn += 1
    return Timed(len(took), sum(took), statistics.median(took))
