"""From a network's outputs to the rows that are sent: width, norm, activation, what is kept. All fp32.

Shared by every runtime, so that two engines differ in their sums alone.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from shoal.families import Prepared
from shoal.families.linears import InNumpy
from shoal.protocol.facts import Facts, Sparse
from shoal.protocol.tensors import Array

_LEAST_NORM = 1e-12
Row = dict[str, Array]


def finish(values: Mapping[str, Array], batch: Sequence[Prepared], facts: Facts) -> list[Row]:
    """The outputs that heads.py names, their rows past the batch ignored → for each item what it asked for.

    "dense" [dims], cut before it is normalised · "sparse.indices" with "sparse.values" [n], ascending and above
    0 · "multivector" [kept tokens, dims] · "score" [], activated, or [labels] logits. All of them copies.
    """
    if facts.reads_pairs:
        return _scores(values["score"][: len(batch)], batch, facts)
    rows: list[Row] = [{} for _ in batch]
    if "dense" in values:
        _add_dense(rows, values["dense"], batch, facts)
    if "sparse" in values:
        _add_sparse(rows, values["sparse"], batch, facts)
    if "multivector" in values:
        _add_multivectors(rows, values["multivector"], batch, facts)
    return rows


def _add_dense(rows: list[Row], values: Array, batch: Sequence[Prepared], facts: Facts) -> None:
    wishes: dict[tuple[int, bool], list[int]] = {}
    for i, prepared in enumerate(batch):
        item = prepared.item
        if "dense" in item.kinds:
            normalize = facts.normalize if item.normalize is None else item.normalize
            wishes.setdefault((item.dims or values.shape[1], normalize), []).append(i)
    for wish, places in wishes.items():
        for i, vector in zip(places, _vectors(values[places], *wish), strict=True):
            rows[i]["dense"] = vector


def _vectors(values: Array, dims: int, normalize: bool) -> Array:
    """values [..., width] → a new array [..., dims]. A zero vector stays one; infinities become NaN."""
    values = values[..., :dims].astype(np.float32)
    if normalize:
        with np.errstate(all="ignore"):  # the host finds what is not finite, and says whose it is
            values /= np.maximum(np.linalg.norm(values, axis=-1, keepdims=True), _LEAST_NORM)
    return values


def _add_sparse(rows: list[Row], values: Array, batch: Sequence[Prepared], facts: Facts) -> None:
    assert facts.sparse is not None
    for row, prepared, weights in zip(rows, batch, values, strict=False):
        if "sparse" in prepared.item.kinds:
            row |= sparse_row(weights, facts.sparse)


def sparse_row(weights: Array, sparse: Sparse) -> Row:
    """weights [vocabulary] as a graph gives them, those of a maximum still without their log."""
    found = np.flatnonzero(~(weights <= 0))  # NaN is kept, for the host to find
    kept = weights[found].astype(np.float32)
    if sparse.pooling == "max":
        for _ in range(sparse.activation.count("log1p")):
            kept = np.log1p(kept)
    return {"sparse.indices": found.astype(np.int32), "sparse.values": kept}


def _add_multivectors(rows: list[Row], values: Array, batch: Sequence[Prepared], facts: Facts) -> None:
    """values [tokens, dims], packed: the texts one after another."""
    assert facts.multivector is not None
    ends = np.cumsum([0, *(prepared.tokens for prepared in batch)])
    for row, prepared, (start, end) in zip(rows, batch, pairwise(ends), strict=True):
        item = prepared.item
        if "multivector" in item.kinds:
            vectors = values[start:end] if prepared.kept is None else values[start:end][prepared.kept]
            normalize = facts.multivector.normalize if item.normalize is None else item.normalize
            row["multivector"] = _vectors(vectors, values.shape[1], normalize)


def _scores(logits: Array, batch: Sequence[Prepared], facts: Facts) -> list[Row]:
    """Of several labels the logits as they are: their task activates them."""
    logits = logits.astype(np.float32)
    if len(facts.labels) > 1:
        return [{"score": row} for row in logits]
    logits = logits[:, 0]
    scores = InNumpy().sigmoid(logits) if facts.activation == "sigmoid" else logits
    return [
        {"score": np.asarray(logit if p.item.raw else score)}
        for p, logit, score in zip(batch, logits, scores, strict=True)
    ]
