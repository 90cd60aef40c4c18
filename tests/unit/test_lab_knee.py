"""The knee of curves whose knee is known: saturating, collapsing, noisy, too short, still growing."""

import random

import pytest

from shoal.lab.knee import Point, is_settled, knee

LOADS = [1, 2, 4, 8, 16, 32, 64, 128, 256]


def closed(loads, throughput, noise=0.0, seed=1):
    """Points of a closed loop: latency follows from throughput by Little's law."""
    rng = random.Random(seed)
    points = []
    for load in loads:
        rate = throughput(load) * (1 + rng.uniform(-noise, noise))
        points.append(Point(load, rate, load / rate, 2 * load / rate))
    return points


def saturating(load):
    """10 requests a second of each connection, 160 at most."""
    return min(10 * load, 160)


def collapsing(load):
    return min(10 * load, 160) if load <= 64 else 160 * 64 / load


def open_loop(rates, capacity, base_s=0.01):
    """Points of an open loop on a server of that capacity: beyond it a queue grows for as long as one measures."""
    return [
        Point(rate, min(rate, capacity), base_s if rate <= capacity else 2.0, 2 * base_s, offered=rate)
        if rate <= capacity
        else Point(rate, capacity, 2.0, 4.0, offered=rate)
        for rate in rates
    ]


def load_of(points, found):
    assert found.place is not None, found.why
    return sorted(p.load for p in points)[found.place]


def test_a_saturating_curve_has_its_knee_where_it_saturates():
    points = closed(LOADS, saturating)
    assert load_of(points, knee(points)) == 16


def test_the_order_of_the_points_does_not_matter():
    points = closed(LOADS, saturating)
    assert knee(points[::-1]) == knee(points)


def test_a_curve_that_collapses_has_its_knee_before_it_does():
    points = closed(LOADS, collapsing)
    assert load_of(points, knee(points)) == 16
    peak = closed([1, 8, 64, 512], lambda load: 10 * load if load <= 64 else 50)
    assert load_of(peak, knee(peak)) == 64


def test_growth_that_is_not_worth_its_wait_is_beyond_the_knee():
    """Beyond 16, eight times the connections and almost eight times the wait for a fifth more throughput."""
    points = closed(LOADS, lambda load: saturating(load) * max(1, load / 16) ** 0.09)
    assert load_of(points, knee(points)) == 16


@pytest.mark.parametrize("seed", range(30))
def test_noise_of_three_percent_moves_the_knee_by_one_step_at_most(seed):
    points = closed(LOADS, saturating, noise=0.03, seed=seed)
    assert load_of(points, knee(points)) in (8, 16, 32)


@pytest.mark.parametrize("kind", ["connections", "rate"])
def test_one_point_has_no_knee(kind):
    found = knee(closed([8], saturating), kind)
    assert found.place is None
    assert "at least two" in found.why


def test_a_curve_that_still_grows_has_no_knee():
    found = knee(closed(LOADS, lambda load: 10 * load))
    assert found.place is None
    assert "still grows" in found.why


def test_loads_too_near_to_each_other_show_no_knee():
    assert knee(closed([16, 17, 18], saturating)).place is None


def test_throughput_that_stands_still_without_more_wait_is_no_knee_of_the_server():
    """What no closed loop on one server shows: a generator that sends no more than this, say."""
    found = knee([Point(load, 100, 0.01, 0.02) for load in LOADS])
    assert found.place is None
    assert "so does latency" in found.why


def test_refusals_count_as_strain():
    points = [Point(8, 100, 0.01, 0.02), Point(16, 101, 0.01, 0.02, failed=0.5)]
    assert load_of(points, knee(points)) == 8


def test_a_server_that_answers_nothing_has_no_knee():
    assert knee([Point(load, 0, float("inf"), float("inf"), failed=1) for load in LOADS]).place is None


def test_over_rates_the_knee_is_the_last_that_is_served():
    rates = [50, 100, 200, 400, 800]
    points = open_loop(rates, 300)
    assert load_of(points, knee(points, "rate")) == 200
    assert knee(open_loop(rates, 1000), "rate").why == "no knee reached: the heaviest rate is still served"
    assert "even the lightest" in knee(open_loop(rates, 10), "rate").why


def test_over_rates_a_server_that_refuses_is_at_its_knee_before():
    points = [Point(100, 100, 0.01, 0.02, 100), Point(200, 110, 0.01, 0.02, 200, failed=0.45)]
    assert load_of(points, knee(points, "rate")) == 100


def test_with_a_latency_target_the_knee_is_the_heaviest_load_within_it():
    points = closed(LOADS, saturating)  # p99: 200 ms up to 16, then 400, 800, ...
    assert load_of(points, knee(points, target_s=0.5)) == 32
    assert "even at the heaviest" in knee(points, target_s=100).why
    assert "no load keeps" in knee(points, target_s=0.1).why


def test_one_load_that_misses_a_target_between_two_that_do_not_is_noise():
    points = [Point(load, 100, 0.01, p99) for load, p99 in zip(LOADS, [1, 1, 9, 1, 1, 9, 9, 9, 9], strict=True)]
    assert load_of(points, knee(points, target_s=2)) == 16


def test_a_ramp_ends_once_the_knee_stays_where_it_was():
    """At 16 it saturates; 32 shows it, 64 confirms it."""
    points = closed(LOADS, saturating)
    ends = [is_settled(points[:count], knee) for count in range(1, len(points) + 1)]
    assert ends.index(True) == LOADS.index(64)
    assert not is_settled(closed(LOADS, lambda load: 10 * load), knee)
