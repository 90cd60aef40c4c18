"""What is counted here reads as prometheus_client's own does."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from shoal.observe.counting import Counts, Spread

BOUNDS = (0.01, 0.5, 1)
VALUES = (0.001, 0.01, 0.3, 1, 7.5)


def samples(registry: CollectorRegistry) -> set[tuple[str, tuple[tuple[str, str], ...], float]]:
    found = (sample for metric in registry.collect() for sample in metric.samples)
    kept = (sample for sample in found if not sample.name.endswith("_created"))
    return {(sample.name, tuple(sorted(sample.labels.items())), sample.value) for sample in kept}


def test_counts_are_those_of_a_counter():
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    counts = Counts("fish", "Seen.", ["kind", "where"], ours)
    counter = Counter("fish", "Seen.", ["kind", "where"], registry=theirs)
    for kind, where, count in (("cod", "sea", 2), ("carp", "pond", 1), ("cod", "sea", 3)):
        counts.add(count, kind, where)
        counter.labels(kind, where).inc(count)
    assert samples(ours) == samples(theirs)
    assert b'fish_total{kind="cod",where="sea"} 5.0' in generate_latest(ours)


def test_a_spread_is_that_of_a_histogram():
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    spread = Spread("size", "Of fish.", "kind", BOUNDS, ours)
    histogram = Histogram("size", "Of fish.", ["kind"], buckets=BOUNDS, registry=theirs)
    for kind in ("cod", "carp"):
        for value in VALUES:
            spread.add(value, kind)
            histogram.labels(kind).observe(value)
    assert samples(ours) == samples(theirs)
