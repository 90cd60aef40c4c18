"""From a network's output to the rows that are sent: pooling outside a graph, width, norm, activation. All fp32.

Shared by every runtime, so that two engines differ in their sums alone.
"""

from collections.abc import Sequence

import numpy as np

from shoal.families import Prepared
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts, Pooling
from shoal.protocol.tensors import Array

_LEAST_NORM = 1e-12


def pool(states: Array, mask: Array, pooling: Pooling) -> Array:
    """states [texts, length, width] and mask [texts, length] of 0 and 1 → [texts, width]."""
    if pooling == "cls":
        first: Array = states[:, 0]
        return first
    if pooling == "mean":
        weights = mask.astype(np.float32)
        summed: Array = np.einsum("tlw,tl->tw", states, weights)
        summed /= weights.sum(axis=1, keepdims=True)
        return summed
    raise ModelLoadFailed("token states need a pooling, mean or cls; the model's files name none")


def finish(values: Array, batch: Sequence[Prepared], facts: Facts) -> list[dict[str, Array]]:
    """values [texts, dims] or logits [texts, 1] → for each item "dense" [dims] or "score" []. Copies."""
    if "score" in facts.tasks:
        return _finish_scores(values[:, 0], batch, facts)
    wishes = [
        (p.item.dims or values.shape[1], facts.normalize if p.item.normalize is None else p.item.normalize)
        for p in batch
    ]
    if len(set(wishes)) == 1:
        return [{"dense": row} for row in _finish_vectors(values, *wishes[0])]
    return [{"dense": _finish_vectors(values[i], *wish)} for i, wish in enumerate(wishes)]


def _finish_vectors(values: Array, dims: int, normalize: bool) -> Array:
    """values [..., width] → a new array [..., dims]. A zero vector stays one; infinities become NaN."""
    values = values[..., :dims].astype(np.float32)
    if normalize:
        with np.errstate(all="ignore"):  # the host finds what is not finite, and says whose it is
            values /= np.maximum(np.linalg.norm(values, axis=-1, keepdims=True), _LEAST_NORM)
    return values


def _finish_scores(logits: Array, batch: Sequence[Prepared], facts: Facts) -> list[dict[str, Array]]:
    logits = logits.astype(np.float32)
    scores = _sigmoid(logits) if facts.activation == "sigmoid" else logits
    return [
        {"score": np.asarray(logit if p.item.raw else score)}
        for p, logit, score in zip(batch, logits, scores, strict=True)
    ]


def _sigmoid(x: Array) -> Array:
    """Without overflow, and exact for very negative x too."""
    small = np.exp(-np.abs(x))
    activated: Array = np.where(x >= 0, 1, small) / (1 + small)
    return activated
