"""From pooled states and logits to rows: width, norm, activation."""

import math

import msgspec
import numpy as np

from shoal.families import Prepared
from shoal.families.finish import finish
from shoal.protocol.facts import Facts, MultiVector, Sparse
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


def test_several_labels_are_logits_whatever_the_activation():
    facts = msgspec.structs.replace(SIGMOID, labels=("no", "yes"))
    (row,) = finish({"score": np.array([[-3.0, 2.0], [7, 7]], np.float32)}, batch(Item("a", pair="b")), facts)
    assert row["score"].tolist() == [-3.0, 2.0]


SPARSE = msgspec.structs.replace(PLAIN, kinds=("sparse",), sparse=Sparse())
TOKENS = msgspec.structs.replace(PLAIN, kinds=("dense", "multivector"), multivector=MultiVector(dims=2))


def sparse(weights, facts) -> list[np.ndarray]:
    values = {"sparse": np.array([weights], np.float32)}
    (row,) = finish(values, batch(Item("a", kinds=("sparse",))), facts)
    return [row["sparse.indices"], row["sparse.values"]]


def test_a_sparse_vector_has_the_words_above_0_and_their_logs_after_a_maximum_but_not_after_a_sum():
    weights = [0, 2, 0, 1e-6, 5]
    indices, values = sparse(weights, SPARSE)
    assert (indices.dtype, indices.tolist()) == (np.int32, [1, 3, 4])
    assert np.allclose(values, np.log1p([2, 1e-6, 5]), rtol=1e-6, atol=0)
    twice = msgspec.structs.replace(SPARSE, sparse=Sparse(activation="log1p_log1p_relu"))
    assert np.allclose(sparse(weights, twice)[1], np.log1p(np.log1p([2, 1e-6, 5])), rtol=1e-6, atol=0)
    plain = msgspec.structs.replace(SPARSE, sparse=Sparse(activation="relu"))
    summed = msgspec.structs.replace(SPARSE, sparse=Sparse(pooling="sum"))
    for facts in (plain, summed):
        assert np.allclose(sparse(weights, facts)[1], [2, 1e-6, 5])


def test_a_sparse_vector_without_words_is_empty_and_one_that_is_not_finite_is_left_for_the_check_to_find():
    assert [part.shape for part in sparse([0, 0, 0], SPARSE)] == [(0,), (0,)]
    assert not np.isfinite(sparse([0, math.nan, 1], SPARSE)[1]).all()
    assert not np.isfinite(sparse([0, math.inf, 1], SPARSE)[1]).all()


def test_each_text_gets_the_vectors_of_its_own_tokens_those_kept_and_in_the_norm_it_asks_for():
    kinds = ("multivector",)
    texts = [
        Prepared(Item("a", kinds=kinds), [1, 2, 3], [0] * 3, kept=[0, 2]),
        Prepared(Item("b", kinds=("dense",)), [1], [0]),
        Prepared(Item("c", kinds=kinds, normalize=False), [1, 2], [0] * 2),
    ]
    values = np.array([[3, 4], [1, 1], [0, 2], [9, 9], [5, 6], [7, 8], [50, 50]], np.float32)  # the last pads
    rows = finish({"dense": np.ones((4, 4), np.float32), "multivector": values}, texts, TOKENS)
    assert [sorted(row) for row in rows] == [["multivector"], ["dense"], ["multivector"]]
    assert np.allclose(rows[0]["multivector"], [[0.6, 0.8], [0, 1]])
    assert np.allclose(rows[2]["multivector"], [[5, 6], [7, 8]])
    values[:] = 0
    assert np.allclose(rows[2]["multivector"], [[5, 6], [7, 8]])
