"""Two reports side by side: the ratio of B to A at each load both measured, and how far it can be trusted.

The interval is a bootstrap over time: rounds are drawn anew, and within each its slices, DRAWS times, on both
sides; 95 of 100 of the ratios so found lie in it. It holds what varied while each side was measured, and cannot
hold what changed between the two: where a machine drifts, measure both in turn, and in several rounds.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from shoal.lab.report import Level, Report, Slice
from shoal.protocol.errors import InvalidInput
from shoal.protocol.tensors import Array

DRAWS = 2000
WITHIN = 0.95


class Ratio(msgspec.Struct, frozen=True):
    """B ÷ A. Without a difference that the measurement resolves, the interval holds 1."""

    what: str
    load: float
    a: float
    b: float
    ratio: float
    low: float
    high: float
    more_is_better: bool

    @property
    def verdict(self) -> str:
        if not (self.low > 1 or self.high < 1):
            return "no difference resolved"
        return "B is better" if (self.ratio > 1) == self.more_is_better else "B is worse"


def compare(a: Report, b: Report, seed: int = 1) -> list[Ratio]:
    """Throughput, p50 and p99 at every load that both have. Raises InvalidInput where they share none."""
    if a.asked.kind != b.asked.kind:
        raise InvalidInput(f"A is measured over {a.asked.kind}, B over {b.asked.kind}")
    there = {level.load: level for level in b.levels}
    shared = [(level, there[level.load]) for level in a.levels if level.load in there]
    if not shared:
        raise InvalidInput(f"the two have no load in common: A has {_loads(a)}, B {_loads(b)}")
    rng = np.random.default_rng(seed)
    return [ratio for pair in shared for ratio in _ratios(*pair, rng)]


def differences(a: Report, b: Report) -> list[str]:
    """What else differs between the two, so that nobody takes it for a difference of the servers."""
    found = []
    for name in ("api", "model", "mix", "seed", "seconds", "tokens"):
        one, other = getattr(a.asked, name), getattr(b.asked, name)
        if one != other:
            found.append(f"{name}: {one} against {other}")
    if a.machine != b.machine:
        found.append("the machine")
    return found


def _loads(report: Report) -> str:
    return ", ".join(f"{level.load:g}" for level in report.levels)


def _ratios(a: Level, b: Level, rng: np.random.Generator) -> list[Ratio]:
    draws_a, draws_b = (_draws(level.slices, rng) for level in (a, b))
    rates_a, rates_b = (_rates(level.slices, draws) for level, draws in ((a, draws_a), (b, draws_b)))
    found = [_ratio("items/s", a.load, a.items_per_second, b.items_per_second, rates_a, rates_b, True)]
    for what, share, one, other in (("p50", 0.5, a.p50_ms, b.p50_ms), ("p99", 0.99, a.p99_ms, b.p99_ms)):
        times_a, times_b = (_quantiles(x.slices, d, share) for x, d in ((a, draws_a), (b, draws_b)))
        found.append(_ratio(what, a.load, one, other, times_a, times_b, False))
    return found


def _ratio(what: str, load: float, a: float, b: float, draws_a: Array, draws_b: Array, more: bool) -> Ratio:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = draws_b / draws_a
    ratios = ratios[np.isfinite(ratios)]
    tail = (1 - WITHIN) / 2
    low, high = np.quantile(ratios, (tail, 1 - tail)) if len(ratios) else (float("nan"), float("nan"))
    return Ratio(what, load, a, b, b / a if a else float("nan"), float(low), float(high), more)


def _draws(slices: Sequence[Slice], rng: np.random.Generator) -> Any:
    """How often each slice is drawn, [DRAWS, slices]: rounds first, then as many of a round's slices as it has."""
    rounds = np.array([entry.round for entry in slices])
    numbers = np.unique(rounds)
    counts = np.zeros((DRAWS, len(slices)))
    for draw in range(DRAWS):
        for number in rng.choice(numbers, len(numbers)):
            (places,) = np.nonzero(rounds == number)
            np.add.at(counts[draw], rng.choice(places, len(places)), 1)
    return counts


def _rates(slices: Sequence[Slice], draws: Array) -> Any:
    items = np.array([entry.items for entry in slices], float)
    seconds = np.array([entry.seconds for entry in slices])
    return (draws @ items) / (draws @ seconds)


def _quantiles(slices: Sequence[Slice], draws: Array, share: float) -> Any:
    """The latency within which `share` of what was drawn was answered, [DRAWS]; NaN where nothing was."""
    sizes = [len(entry.latencies_ms) for entry in slices]
    latencies = np.concatenate([np.asarray(entry.latencies_ms, float) for entry in slices])
    if not len(latencies):
        return np.full(DRAWS, np.nan)
    owner = np.repeat(np.arange(len(slices)), sizes)
    weight = np.array([entry.asked / max(1, size) for entry, size in zip(slices, sizes, strict=True)])[owner]
    order = np.argsort(latencies)
    latencies, owner, weight = latencies[order], owner[order], weight[order]
    found = np.full(DRAWS, np.nan)
    for draw in range(DRAWS):
        reached = np.cumsum(weight * draws[draw][owner])
        if reached[-1]:
            found[draw] = latencies[min(len(latencies) - 1, np.searchsorted(reached, share * reached[-1]))]
    return found
