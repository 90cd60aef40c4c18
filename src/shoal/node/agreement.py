"""How near what a model computes is to what whoever pushed it says: rows beside rows, each with its bar. Pure.

Vectors have to point the same way, by their cosine. Scores are compared as `lab/gate` compares them: 1 less their
largest difference, as a share of what lies between the lowest and the highest of the reference, or of 1 where that
is more.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from shoal.catalog.proof import Row
from shoal.protocol.errors import InvalidInput
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Output
from shoal.protocol.tensors import Array

BF16 = 0.999
"""A vector computed in bf16, beside the reference's own fp32: what a model of any size keeps. Fewer bits still, or
an artifact that says less of itself (`tolerance`), are allowed what they are known to lose."""
SCORES = 0.99


class Agreement(msgspec.Struct, frozen=True):
    """`nearest` of the `rows` is the worst, and which of them that is; it has to reach `bar`."""

    rows: int
    nearest: float
    where: int
    bar: float

    @property
    def holds(self) -> bool:
        return self.nearest >= self.bar


def bar(facts: Facts, profile: Profile) -> float:
    if facts.reads_pairs:
        return SCORES
    return profile.tolerance if profile.dtype == "fp32" else min(profile.tolerance, BF16)


def compare(rows: Sequence[Row], outputs: Sequence[Output], facts: Facts, profile: Profile) -> Agreement:
    """As many outputs as rows, at least one. Raises InvalidInput where they are not of one shape, with the row."""
    near = _scores(rows, outputs) if facts.reads_pairs else _vectors(rows, outputs, facts)
    where = int(np.argmin(near))
    return Agreement(len(rows), float(near[where]), where, bar(facts, profile))


def _vectors(rows: Sequence[Row], outputs: Sequence[Output], facts: Facts) -> Array:
    told = enumerate(zip(rows, outputs, strict=True))
    return np.array([_cosine(*_pair(number, row, output, facts)) for number, (row, output) in told])


def _pair(number: int, row: Row, output: Output, facts: Facts) -> tuple[Array, Array]:
    said = _numbers(number, row)
    if row.indices is not None:
        return _words(number, row, said, output)
    kind = "dense" if "dense" in facts.kinds else "multivector"
    if kind not in output.tensors:
        raise InvalidInput(f"reference row {number} has no `indices`, and this model gives weights of words")
    found = output.tensors[kind].numpy().astype(np.float64).reshape(-1)
    if found.shape != said.shape:
        raise InvalidInput(f"reference row {number} has {said.size} values, and this model gives {found.size}")
    return found, said


def _words(number: int, row: Row, said: Array, output: Output) -> tuple[Array, Array]:
    """Both over the words that either has."""
    if "sparse.indices" not in output.tensors:
        raise InvalidInput(f"reference row {number} has `indices`, and this model gives no weights of words")
    wanted = np.array(row.indices, np.int64)
    if wanted.shape != said.shape:
        raise InvalidInput(f"reference row {number} has {wanted.size} indices and {said.size} values")
    known = output.tensors["sparse.indices"].numpy().astype(np.int64)
    words = np.union1d(known, wanted)
    found, expected = np.zeros(len(words)), np.zeros(len(words))
    found[np.searchsorted(words, known)] = output.tensors["sparse.values"].numpy()
    expected[np.searchsorted(words, wanted)] = said
    return found, expected


def _scores(rows: Sequence[Row], outputs: Sequence[Output]) -> Array:
    said = [_numbers(number, row) for number, row in enumerate(rows)]
    found = [output.tensors["score"].numpy().astype(np.float64).reshape(-1) for output in outputs]
    for number, (one, other) in enumerate(zip(found, said, strict=True)):
        if one.shape != other.shape:
            raise InvalidInput(f"reference row {number} has {other.size} values, and this model gives {one.size}")
    spread = max(1.0, float(np.ptp(np.concatenate(said))))
    return np.array([1 - np.abs(one - other).max() / spread for one, other in zip(found, said, strict=True)])


def _numbers(number: int, row: Row) -> Array:
    said = np.array(row.values, np.float64)
    if not said.size or not np.isfinite(said).all():
        raise InvalidInput(f"reference row {number} has no values, or values that are no numbers")
    return said


def _cosine(found: Array, said: Array) -> float:
    lengths = float(np.linalg.norm(found) * np.linalg.norm(said))
    return float(found @ said) / lengths if lengths else float(not found.any() and not said.any())
