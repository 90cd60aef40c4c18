"""Which parts of a large request a node gives away."""

import itertools
import random

import pytest

from shoal.node.cost import Cost
from shoal.node.shares import parts_of

COST = Cost(a=0.001, b=0.00001)
"""A good batch is 1,200 tokens."""


def parts(tokens, waiting=3, others=3, cost=COST):
    return parts_of(tokens, cost, 16_384, 1, waiting, others)


def test_nothing_is_given_away_where_nobody_else_has_the_model():
    assert parts([50.0] * 1000, waiting=0, others=0) == []


def test_a_request_of_about_one_batch_stays():
    assert parts([20.0] * 100) == []
    assert parts([5000.0]) == []


def test_a_request_that_takes_but_a_moment_stays_while_all_others_work():
    assert parts([30.0] * 100, waiting=0) == []
    assert parts([30.0] * 1000, waiting=0) != []


@pytest.mark.parametrize("waiting", [1, 3, 7])
def test_idle_nodes_get_as_much_as_stays(waiting):
    tokens = [30.0] * 1000
    given = [index for part in parts(tokens, waiting=waiting, others=waiting) for index in part]
    assert len(given) / 1000 == pytest.approx(waiting / (waiting + 1), rel=0.02)


def test_parts_are_alike_in_length_and_in_cost_and_no_item_is_in_two():
    rng = random.Random(5)
    tokens = [min(400.0, rng.lognormvariate(3.4, 1.0)) for _ in range(1000)]
    given = parts(tokens)
    members = [index for part in given for index in part]
    assert len(members) == len(set(members))
    sizes = [sum(tokens[index] for index in part) for part in given]
    assert max(sizes) < 1.25 * min(sizes)
    assert max(sizes) < 1.5 * 1200
    for shorter, longer in itertools.pairwise(given):
        assert max(tokens[i] for i in shorter) <= min(tokens[i] for i in longer)


def test_something_always_stays_here():
    for count in range(2, 60):
        tokens = [700.0] * count
        assert sum(len(part) for part in parts(tokens)) < count
