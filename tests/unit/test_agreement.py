"""What a model computes beside what its pusher says: which figure counts, and what is not of one shape."""

import numpy as np
import pytest

from shoal.catalog.proof import Row
from shoal.node.agreement import BF16, SCORES, bar, compare
from shoal.protocol.errors import InvalidInput
from shoal.protocol.facts import Facts, MultiVector, Profile, Sparse
from shoal.protocol.items import Output
from shoal.protocol.tensors import Tensor

DENSE = Facts(tasks=("encode",), family="bert", files="safetensors", max_tokens=64, dims=3)
SPARSE = Facts(
    tasks=("encode",), family="bert", files="safetensors", max_tokens=64, kinds=("sparse",), sparse=Sparse()
)
TOKENS = Facts(
    tasks=("encode",), family="bert", files="safetensors", max_tokens=64, kinds=("multivector",),
    multivector=MultiVector(dims=2),
)  # fmt: skip
PAIRS = Facts(tasks=("score",), family="bert", files="safetensors", max_tokens=64)
FP32 = Profile(runtime="openvino")


def output(**tensors) -> Output:
    return Output({name.replace("_", "."): Tensor.of(np.array(value)) for name, value in tensors.items()})


def test_the_worst_row_counts_and_says_which_it_is():
    rows = [Row("a", [1, 0, 0]), Row("b", [0, 2, 0.2]), Row("c", [0, 0, 1])]
    outputs = [output(dense=row) for row in ([1, 0, 0.0], [0, 1, 0.0], [0, 0, 1.0])]
    found = compare(rows, outputs, DENSE, FP32)
    assert (found.rows, found.where, found.holds) == (3, 1, False)
    assert found.nearest == pytest.approx(2 / np.hypot(2, 0.2))
    assert compare(rows[::2], outputs[::2], DENSE, FP32).holds


def test_the_bar_is_the_models_tolerance_and_in_bf16_what_bf16_can_keep():
    assert bar(DENSE, FP32) == 0.9999
    assert bar(DENSE, Profile(runtime="openvino", dtype="bf16")) == BF16
    assert bar(DENSE, Profile(runtime="onnx", tolerance=0.98)) == 0.98
    assert bar(PAIRS, FP32) == SCORES


def test_words_that_only_one_side_has_count_against_it():
    row = Row("a", [2.0, 1.0], indices=[7, 3])
    same = output(sparse_indices=np.array([3, 7], "i4"), sparse_values=[1.0, 2.0])
    more = output(sparse_indices=np.array([3, 7, 9], "i4"), sparse_values=[1.0, 2.0, 2.0])
    assert compare([row], [same], SPARSE, FP32).nearest == pytest.approx(1)
    assert compare([row], [more], SPARSE, FP32).nearest == pytest.approx(5 / np.sqrt(5 * 9))


def test_token_vectors_are_compared_one_after_the_other():
    found = compare([Row("a", [1, 0, 0, 1])], [output(multivector=[[1.0, 0], [0, 1]])], TOKENS, FP32)
    assert found.nearest == pytest.approx(1)


def test_scores_may_differ_by_a_hundredth_of_what_lies_between_them():
    rows = [Row("q", [-5.0], pair="a"), Row("q", [5.0], pair="b")]
    assert compare(rows, [output(score=-5.05), output(score=5.05)], PAIRS, FP32).holds
    assert not compare(rows, [output(score=-5.0), output(score=4.8)], PAIRS, FP32).holds
    alike = [Row("q", [0.5], pair="a"), Row("q", [0.5], pair="b")]
    assert compare(alike, [output(score=0.505), output(score=0.5)], PAIRS, FP32).holds


@pytest.mark.parametrize(
    ("row", "facts", "words"),
    [
        (Row("a", [1, 0]), DENSE, "row 0 has 2 values, and this model gives 3"),
        (Row("a", []), DENSE, "no values"),
        (Row("a", [float("nan"), 0, 0]), DENSE, "no numbers"),
        (Row("a", [1.0], indices=[1]), DENSE, "gives no weights of words"),
        (Row("a", [1.0, 2.0]), SPARSE, "no `indices`"),
        (Row("a", [1.0, 2.0], indices=[1]), SPARSE, "1 indices and 2 values"),
        (Row("a", [1.0, 2.0], pair="b"), PAIRS, "row 0 has 2 values"),
    ],
)
def test_what_is_not_of_one_shape_is_refused_naming_the_row(row, facts, words):
    found = {
        "dense": output(dense=[1.0, 0, 0]),
        "sparse": output(sparse_indices=np.array([1], "i4"), sparse_values=[1.0]),
    }[facts.kinds[0]]
    with pytest.raises(InvalidInput, match=words):
        compare([row], [output(score=1.0) if facts is PAIRS else found], facts, FP32)
