"""Whether a model computed in fewer bits is still the same model: figures of its outputs beside fp32's, each with
the bar it has to reach. Pure: arrays in, figures out. What is computed, and from which texts: gate_run.py.

- **Vectors** keep their direction. The worst of all texts counts, not the mean: a user sees one text's neighbours.
  A dense vector has to reach 0.9999, which is what "lossless" is taken to mean everywhere in Shoal; so has a
  sparse one, whose weights people read, and it has to keep nearly all of its heaviest words. For a token's vector,
  one of hundreds that MaxSim sums up, 0.999 is enough. Of both the ranking decides as well.
- **Rankings** keep the order of every two documents that fp32 tells apart. Two count as told apart where their
  scores differ by more than 1 % of the *spread* of that query's scores, which is what lies between its best and
  its worst document: scores have no unit, and a model that finds all documents alike has little spread, so that
  less noise is allowed it. Of such pairs 99.9 % have to keep their order. Nearer ones are ties: which comes first
  there is chance in fp32 too (another engine, another batch).
- **Scores** of a cross-encoder are also read by themselves, by one threshold for all queries: none may move by
  more than 1 % of what lies between the lowest and the highest of all. Products of sparse or token vectors grow
  with a text's length, and are only compared with one another.
- **nDCG@10**, where right answers are known, may differ by 0.005.

Spearman's correlation is told and decides nothing: it counts each swap among near ties (the tail of documents that
have nothing to do with the query) like one at the top.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from shoal.catalog.profiles import Figure
from shoal.protocol.tensors import Array

DENSE, SPARSE, TOKENS = 0.9999, 0.9999, 0.999
APART = 0.01
IN_ORDER = 0.999
MOVED = 0.01
NDCG_APART = 0.005
TOP_WORDS = 32
TOP_WORDS_KEPT = 0.95
_FAR = 1e9
_MOVED = "largest difference of a score, as a share of the spread of all"


class Part(msgspec.Struct, frozen=True):
    """Of one kind of output. `near` is the least cosine; of scores, 1 less their largest difference as a share of
    what lies between the lowest and the highest."""

    figures: list[Figure]
    near: float


def cosines(found: Array, exact: Array) -> Array:
    """[n, dims] twice → [n]. Two zero vectors are alike; what is no number is as far away as can be."""
    with np.errstate(all="ignore"):
        lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(exact, axis=1)
        products = (found.astype(np.float64) * exact).sum(axis=1)
        near = np.where(lengths > 0, products / lengths, ~(found.any(axis=1) | exact.any(axis=1)))
    return np.nan_to_num(near, nan=-1.0)


def dense(found: Array, exact: Array, bar: float = DENSE) -> Part:
    """[texts, dims] twice. `bar` is the least that the worst cosine may be."""
    return _vectors("dense vector", cosines(found, exact), bar)


def tokens(found: Sequence[Array], exact: Sequence[Array]) -> Part:
    """Of each text its [tokens, dims]."""
    return _vectors("token's vector", cosines(np.concatenate(found), np.concatenate(exact)), TOKENS)


def sparse(found: Array, exact: Array) -> Part:
    """[texts, vocabulary] twice, zeros and all."""
    part = _vectors("sparse vector", cosines(found, exact), SPARSE)
    kept = [_top_kept(a, b) for a, b in zip(found, exact, strict=True) if b.any()]
    if kept:
        what = f"mean share of the {TOP_WORDS} heaviest words that are the same"
        part.figures.append(Figure(what, float(np.mean(kept)), "≥", TOP_WORDS_KEPT))
    return part


def _vectors(what: str, near: Array, bar: float) -> Part:
    least = float(near.min())
    figures = [
        Figure(f"worst cosine of a {what}, of {len(near)}", least, "≥", bar),
        Figure(f"mean cosine of a {what}", float(near.mean())),
    ]
    return Part(figures, least)


def _top_kept(found: Array, exact: Array) -> float:
    """Of the words that fp32 weighs most the share that is among as many of the other's."""
    count = min(TOP_WORDS, int(np.count_nonzero(exact)))
    first, second = (set(np.argsort(-weights, kind="stable")[:count].tolist()) for weights in (found, exact))
    return len(first & second) / count


def scores(found: Sequence[Array], exact: Sequence[Array], *, alone: bool) -> Part:
    """Of each query the scores of its documents, twice. `alone`: they are also read by themselves."""
    told = list(zip(found, exact, strict=True))
    moved = _moved(np.concatenate(found), np.concatenate(exact))
    counts = [_in_order(a, b) for a, b in told]
    kept, apart = sum(kept for kept, _ in counts), sum(apart for _, apart in counts)
    figures = [
        Figure(_MOVED, moved, "≤", MOVED) if alone else Figure(_MOVED, moved),
        Figure(f"share in order, of {apart} pairs told apart", kept / apart if apart else 1.0, "≥", IN_ORDER),
        Figure("lowest rank correlation of a query (Spearman)", min(_spearman(a, b) for a, b in told)),
        Figure("mean spread of a query's scores", float(np.mean([np.ptp(b) for _, b in told]))),
    ]
    return Part(figures, max(0.0, 1 - moved))


def ndcg(found: Sequence[Array], exact: Sequence[Array]) -> Figure:
    """Of each query the scores of its documents, the first of which is the right one (Järvelin, Kekäläinen)."""
    ours, theirs = (float(np.mean([_gain(row) for row in rows])) for rows in (found, exact))
    what = f"nDCG@10 of {len(exact)} labelled queries, from fp32's {theirs:.4f}"
    return Figure(what, abs(ours - theirs), "≤", NDCG_APART)


def _gain(row: Array) -> float:
    rank = int((row[1:] >= row[0]).sum())
    return 1 / math.log2(rank + 2) if rank < 10 else 0.0


def _moved(found: Array, exact: Array) -> float:
    """What is no number has moved by more than there is, and so has any score where all were the same."""
    with np.errstate(all="ignore"):
        most = np.abs(found - exact).max()
        return float(np.nan_to_num(most / np.ptp(exact) if most != 0 else 0.0, nan=_FAR, posinf=_FAR))


def _in_order(found: Array, exact: Array) -> tuple[int, int]:
    """How many of the pairs that fp32 tells apart are in its order, and how many there are."""
    apart = exact[:, None] - exact[None, :] > APART * np.ptp(exact)  # each pair once: the better one first
    return int((apart & (found[:, None] > found[None, :])).sum()), int(apart.sum())


def _spearman(found: Array, exact: Array) -> float:
    """Of equal scores the earlier document comes first in both."""
    if not np.isfinite(found).all():
        return -1.0
    ranks = np.array([np.argsort(np.argsort(-row, kind="stable"), kind="stable") for row in (found, exact)])
    ranks = ranks - (len(exact) - 1) / 2
    return float((ranks[0] * ranks[1]).sum() / (ranks[1] ** 2).sum()) if len(exact) > 1 else 1.0
