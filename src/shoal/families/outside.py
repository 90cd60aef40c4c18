"""What heads.py puts on top of a network, done in numpy for graphs that were published without it. All fp32."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shoal.families.heads import read_projection, sparse_facts
from shoal.families.linears import InNumpy, read_linears, through
from shoal.families.words import pool_logits
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts, Pooling
from shoal.protocol.tensors import Array


class Outside:
    """Of a model's one output: token states, or a pooled vector, or logits of labels or of words."""

    def __init__(self, folder: Path, facts: Facts) -> None:
        """Raises ModelLoadFailed, also where one output cannot give all kinds."""
        self._facts = facts
        if facts.reads_pairs:
            return
        if "sparse" in facts.kinds and len(facts.kinds) > 1:
            raise ModelLoadFailed("a published graph's words give sparse vectors and no others")
        self._dense = read_linears(folder, facts.dense) if "dense" in facts.kinds else []
        self._projection = read_projection(folder, facts) if "multivector" in facts.kinds else []

    def outputs(self, values: Array, mask: Array, lengths: Sequence[int]) -> dict[str, Array]:
        """`values` [texts, length, width], or [texts, …] if pooled; `mask` [texts, length] of tokens that are
        looked at, text first; `lengths` count the others too. → the outputs that heads.py names.
        """
        if self._facts.reads_pairs:
            return {"score": values.reshape(len(values), -1)}
        if self._facts.kinds == ("sparse",):
            sparse = sparse_facts(self._facts)
            texts = zip(values, mask, strict=True)
            return {"sparse": np.stack([pool_logits(row[seen > 0], None, sparse) for row, seen in texts])}
        outputs: dict[str, Array] = {}
        if "dense" in self._facts.kinds:
            # A graph that pools was exported with all that comes after.
            outputs["dense"] = values.reshape(len(values), -1) if values.ndim != 3 else self._pooled(values, mask)
        if "multivector" in self._facts.kinds:
            packed = np.concatenate([row[:length] for row, length in zip(values, lengths, strict=True)])
            outputs["multivector"] = through(InNumpy(), packed, self._projection)
        return outputs

    def _pooled(self, states: Array, mask: Array) -> Array:
        vectors: Array = through(InNumpy(), pool(states, mask, self._facts.pooling), self._dense)
        return vectors


def pool(states: Array, mask: Array, pooling: Pooling) -> Array:
    """states [texts, length, width] and mask [texts, length] of 0 and 1, text first → [texts, width]."""
    if pooling == "none":
        raise ModelLoadFailed("token states need a pooling, mean or cls for instance; the model's files name none")
    if pooling == "cls":
        first: Array = states[:, 0]
        return first
    if pooling == "last":
        last: Array = states[np.arange(len(states)), mask.sum(axis=1).astype(np.int64) - 1]
        return last
    if pooling == "max":
        greatest: Array = np.where(mask[:, :, None] > 0, states, -np.inf).max(axis=1)
        return greatest
    weights = mask.astype(np.float32)
    if pooling == "weighted_mean":
        weights *= np.arange(1, mask.shape[1] + 1, dtype=np.float32)
    total = weights.sum(axis=1, keepdims=True)
    summed: Array = np.einsum("tlw,tl->tw", states, weights)
    summed /= np.sqrt(total) if pooling == "mean_sqrt_len" else total
    return summed
