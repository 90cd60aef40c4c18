"""From pooled states and logits to rows: width, norm, activation."""

import math

import numpy as np
import pytest

from shoal.families import Prepared
from shoal.families.finish import finish
from shoal.families.outside import pool
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item

ENCODER = Facts(tasks=("encode",), family="bert", files="none", max_tokens=8, dims=4, normalize=True)
PLAIN = Facts(tasks=("encode",), family="bert", files="none", max_tokens=8, dims=4)
SCORER = Facts(tasks=("score",), family="bert", files="none", max_tokens=8)
SIGMOID = Facts(tasks=("score",), family="bert", files="none", max_tokens=8, activation="sigmoid")


def batch(*items: Item) -> list[Prepared]:
    return [Prepared(item, [1, 2], [0, 0]) for item in items]


def vectors(values, items, facts) -> list[np.ndarray]:
    return [row["dense"] for row in finish({"dense": np.array(values, np.float32)}, batch(*items), facts)]


def scores(logits, items, facts) -> list[np.ndarray]:
    return [row["score"] for row in finish({"score": np.array(logits, np.float32)[:, None]}, batch(*items), facts)]


def test_vectors_are_normalised_where_the_model_does_so():
    assert np.allclose(vectors([[3, 4, 0, 0]], [Item("a")], ENCODER), [[0.6, 0.8, 0, 0]])
    assert np.allclose(vectors([[3, 4, 0, 0]], [Item("a")], PLAIN), [[3, 4, 0, 0]])


def test_each_item_may_ask_for_its_own_width_and_norm():
    rows = vectors(
        [[3, 4, 0, 5]] * 4,
        [Item("a"), Item("a", normalize=False), Item("a", dims=2), Item("a", dims=1, normalize=False)],
        ENCODER,
    )
    expected = [np.array([3, 4, 0, 5]) / math.sqrt(50), [3, 4, 0, 5], [0.6, 0.8], [3]]
    assert all(np.allclose(row, wanted) for row, wanted in zip(rows, expected, strict=True))


def test_a_shorter_vector_is_cut_before_it_is_normalised():
    rows = vectors([[3, 4, 5, 6], [6, 8, 1, 1]], [Item("a", dims=2)] * 2, ENCODER)
    assert np.allclose(rows, [[0.6, 0.8]] * 2)


def test_a_zero_vector_stays_zero_and_an_infinite_one_is_left_for_the_check_to_find():
    zero, infinite = vectors([[0, 0, 0, 0], [math.inf, 1, 0, 0]], [Item("a")] * 2, ENCODER)
    assert np.array_equal(zero, np.zeros(4))
    assert not np.isfinite(infinite).all()


def test_rows_are_copies_of_what_the_engine_may_overwrite():
    values = np.ones((1, 4), np.float32)
    (row,) = finish({"dense": values}, batch(Item("a")), PLAIN)
    values[:] = 7
    assert np.array_equal(row["dense"], np.ones(4))


def test_a_score_is_the_logit_or_its_sigmoid_and_raw_is_always_the_logit():
    assert scores([2.0], [Item("a", pair="b")], SCORER)[0] == 2.0
    activated, raw = scores([2.0, 2.0], [Item("a", pair="b"), Item("a", pair="b", raw=True)], SIGMOID)
    assert math.isclose(activated, 1 / (1 + math.exp(-2)), rel_tol=1e-6)
    assert raw == 2.0
    assert activated.shape == ()
    assert activated.dtype == np.float32


def test_a_sigmoid_of_any_logit_is_exact_and_never_overflows():
    logits = [-1000.0, -60.0, -10.0, 0.0, 10.0, 1000.0]
    found = scores(logits, [Item("a", pair="b")] * len(logits), SIGMOID)
    assert np.allclose(found, [0, math.exp(-60), 4.5397868e-05, 0.5, 0.9999546, 1], rtol=1e-6, atol=0)


def test_mean_pooling_leaves_padding_out_and_cls_takes_the_first():
    states = np.array([[[1, 2], [3, 4], [99, 99]], [[5, 6], [7, 8], [9, 10]]], np.float32)
    mask = np.array([[1, 1, 0], [1, 1, 1]])
    assert np.allclose(pool(states, mask, "mean"), [[2, 3], [7, 8]])
    assert np.allclose(pool(states, mask, "cls"), [[1, 2], [5, 6]])


def test_token_states_without_a_pooling_fail_the_load():
    with pytest.raises(ModelLoadFailed, match="pooling"):
        pool(np.zeros((1, 1, 2)), np.ones((1, 1)), "none")
