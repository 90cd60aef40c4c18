"""How much of a line a node asks the queue for, when, and what it gives back."""

import math

import pytest

from shoal.node.cost import Cost
from shoal.node.pulling import (
    HELD_BYTES,
    MOST_JOBS,
    Device,
    Hand,
    Pull,
    alone,
    among_others,
    late_at,
    window_tokens,
)

CHEAP = Cost(a=0.001, b=0.001)
COST = Cost(a=0.001, b=0.000002)
"""A good batch is 6,000 tokens, 13 ms."""


def hand(held=0, size=0, due=(0.0,), streams=1) -> Hand:
    devices = tuple(Device(streams, at) for at in due)
    return Hand(devices, 32, 384, held_jobs=held, held_bytes=size, held_tokens=held * 12.0)


def among(hand: Hand, *, cost=COST, target=1.0, round_trip=0.0, padding=1.0) -> Pull:
    return among_others(hand, cost, padding, 30.0, target, round_trip, now=100.0)


def test_a_node_that_is_alone_asks_for_as_many_jobs_as_a_window_for_every_stream_has_items():
    assert alone(hand(held=10, streams=2), CHEAP) == Pull(54, 2 * 384)
    assert alone(hand(held=64, streams=2), CHEAP) == Pull()


def test_a_request_of_ten_thousand_texts_in_hand_does_not_keep_others_from_being_pulled():
    assert alone(hand(held=1, streams=2), CHEAP).jobs == 63


def test_nothing_more_is_pulled_while_very_much_text_waits_here():
    assert alone(hand(held=1, size=HELD_BYTES), CHEAP) == Pull()


def test_a_costly_start_asks_for_larger_windows_within_bounds():
    assert alone(hand(), Cost(a=0.001, b=0.00001)).tokens == pytest.approx(1200)
    assert alone(hand(), Cost(a=1.0, b=0.00001)).tokens == 8 * 384


def test_a_window_is_a_good_batch_or_what_runs_in_half_of_the_latency_target():
    assert window_tokens(COST, 1.0, target_s=1.0) == pytest.approx(6000)
    assert window_tokens(COST, 1.0, target_s=0.01) == pytest.approx(2000)
    assert window_tokens(COST, 2.0, target_s=1.0) == pytest.approx(3000)


def test_a_device_too_slow_for_the_target_still_gets_batches_that_are_worth_their_fixed_price():
    assert window_tokens(COST, 1.0, target_s=0.0) == pytest.approx(500)


def test_an_idle_device_asks_at_once_for_one_window():
    assert among(hand()).tokens == pytest.approx(6000)


def test_a_busy_device_asks_as_late_as_an_answer_still_comes_in_time():
    assert among(hand(due=(100.5,)), round_trip=0.002) == Pull(wait_until=100.498)
    assert among(hand(due=(100.002,)), round_trip=0.002).tokens == pytest.approx(6000)


def test_a_device_that_is_late_asks_for_nothing_until_it_answers():
    assert among(hand(due=(math.inf,))) == Pull()
    assert among(hand(due=(math.inf, 100.5))) == Pull(wait_until=100.5)


def test_no_more_than_one_window_is_prefetched():
    assert among(hand(held=500)) == Pull()
    assert among(hand(held=500, due=(100.5,))) == Pull()


def test_somewhat_more_jobs_are_asked_for_than_usually_fill_a_window():
    assert among(hand()).jobs == 300


def test_what_waits_here_is_not_asked_for_again():
    assert among(hand(held=100)).tokens == pytest.approx(4800)


@pytest.mark.parametrize("b", [0.0, 1e-300, 1e-12])
def test_where_a_token_was_learned_to_cost_nothing_windows_are_large_but_have_an_end(b):
    """Measurements that are all noise give such a price."""
    cost = Cost(a=0.002, b=b)
    assert among(hand(), cost=cost).tokens == 64 * 384
    assert 0 < among(hand(held=100), cost=cost).jobs <= MOST_JOBS
    assert alone(hand(), cost).tokens == 8 * 384


def test_several_devices_ask_for_those_that_will_be_free():
    assert among(hand(due=(0.0, 0.0, 100.5))).tokens == pytest.approx(12000)
    assert among(hand(due=(100.9, 100.5))) == Pull(wait_until=100.5)


def test_a_window_is_late_after_a_quarter_of_its_prediction_and_at_least_a_fifth_of_the_target():
    assert late_at(10.0, predicted_s=0.01, target_s=0.1) == pytest.approx(10.02)
    assert late_at(10.0, predicted_s=0.01, target_s=1.6) == pytest.approx(10.32)
    assert late_at(10.0, predicted_s=1.0, target_s=0.1) == pytest.approx(10.25)
