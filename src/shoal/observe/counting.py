"""Counts and spreads of what is on everyone's way: to count is a look in a dict. prometheus_client reads them when
a page is drawn; its own, which threads may share, take five times as long.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector


class Counts(Collector):
    def __init__(self, name: str, words: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._name, self._words, self._labels = name, words, labels
        self._counts: dict[tuple[str, ...], float] = {}
        registry.register(self)

    def add(self, count: float, *labels: str) -> None:
        self._counts[labels] = self._counts.get(labels, 0) + count

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._words, labels=self._labels)
        for labels, count in self._counts.items():
            family.add_metric(labels, count)
        yield family


class Spread(Collector):
    """How many values were at most as great as each of `bounds`, by one label."""

    def __init__(
        self, name: str, words: str, label: str, bounds: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._name, self._words, self._label, self._bounds = name, words, label, bounds
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        registry.register(self)

    def add(self, value: float, label: str) -> None:
        if label not in self._counts:
            self._counts[label] = [0] * (len(self._bounds) + 1)
            self._sums[label] = 0.0
        self._counts[label][bisect_left(self._bounds, value)] += 1
        self._sums[label] += value

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._words, labels=[self._label])
        for label, counts in self._counts.items():
            buckets = [
                (bound, sum(counts[: place + 1]))
                for place, bound in enumerate((*(str(float(bound)) for bound in self._bounds), "+Inf"))
            ]
            family.add_metric([label], buckets, self._sums[label])
        yield family
