"""A micro-batch as arrays of few distinct shapes. Engines keep compiled kernels and buffers for every shape they
have seen, so token counts, lengths and text counts are rounded up; what pads them changes no result.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np

from shoal.families import Prepared
from shoal.families.weights import Table
from shoal.protocol.tensors import Array
from shoal.runtimes.microbatch import ALIKE

Steps = tuple[tuple[int, int], ...]
"""(most, step), ascending: a number that is at most so great is rounded up to a multiple of that step."""

_ANY = sys.maxsize


class Rounding(NamedTuple):
    """How coarsely each number of a micro-batch is rounded up. Another token is another row of every product,
    another text costs the whole square of the longest."""

    tokens: Steps
    texts: Steps
    length: Steps


FINE = Rounding(
    tokens=((_ANY, 16),),
    texts=((8, 1), (16, 2), (32, 4), (_ANY, 8)),
    length=((_ANY, ALIKE),),
)
"""For an engine that keeps nothing for a shape."""

FEW = Rounding(
    tokens=((128, 16), (512, 32), (_ANY, 64)),
    texts=((4, 1), (8, 2), (16, 4), (_ANY, 8)),
    length=((128, 16), (512, 32), (_ANY, 64)),
)
"""For one that keeps kernels for every number of tokens, and for every number of texts and their length together:
of 384 tokens at most there are 16, and 40 to 60 of those. Lengths that are no multiple of 16 are slower, too."""

FEWER = FEW._replace(tokens=((128, 64), (256, 128), (320, 64), (384, 32), (512, 64), (_ANY, 128)))
"""Where each number of tokens costs more still. Steps are fine where most passes end up, at the most that one may
have (384, unless a profile says more)."""


class Packed(msgspec.Struct, frozen=True):
    """Texts one after another in T rows, and how to lay them out as B texts of L tokens and back.

    Padding tokens repeat token 0 of text 0, padding texts hold one token; nothing looks at either.
    """

    ids: Array
    """[T] int32, as are `positions` and `segments`."""
    positions: Array
    segments: Array
    gather: Array
    """[B, L] int32: which of the T rows stands there."""
    scatter: Array
    """[T] int32: where in B·L each row stands."""
    mask: Array
    """[B, L] fp32: 1 for a token, 0 for padding and for tokens that no other may look at."""
    firsts: Array
    """[B] int32: the row of each text's first token."""
    lasts: Array
    """[B] int32: the row of each text's last token in the mask."""

    @property
    def tokens(self) -> int:
        return len(self.ids)

    @property
    def ordinals(self) -> Array:
        """[B, L] fp32: a token's number in its text, from 1; 0 where the mask is 0."""
        numbered: Array = self.mask * np.arange(1, self.mask.shape[1] + 1, dtype=np.float32)
        return numbered

    def feed(self, names: Iterable[str], tables: Mapping[str, Table], more: Mapping[str, Any] = {}) -> list[Any]:
        """The inputs that a graph asks for: rows of `tables` for the token ids, what `more` holds, and fields of
        ours for the rest."""
        return [
            tables[n].take(self.ids) if n in tables else more[n] if n in more else getattr(self, n) for n in names
        ]


def pack(batch: Sequence[Prepared], rounding: Rounding = FINE) -> Packed:
    lengths = np.array([p.tokens for p in batch])
    texts, tokens = len(batch), int(lengths.sum())
    T, B = _up(tokens, rounding.tokens), _up(texts, rounding.texts)
    L = _up(int(lengths.max()), rounding.length)
    firsts = np.cumsum(lengths) - lengths
    positions = np.arange(tokens) - np.repeat(firsts, lengths)
    places = np.repeat(np.arange(texts) * L, lengths) + positions
    gather = np.zeros(B * L, np.int32)
    gather[places] = np.arange(tokens)
    mask = np.zeros(B * L, np.float32)
    mask[places] = 1
    mask[texts * L :: L] = 1  # a softmax over nothing would be NaN
    seen = lengths - np.array([p.unseen for p in batch])
    for i in np.flatnonzero(seen < lengths):
        mask[i * L + seen[i] : (i + 1) * L] = 0
    return Packed(
        ids=_padded(np.fromiter(chain.from_iterable(p.ids for p in batch), np.int32, tokens), T),
        positions=_padded(positions, T),
        segments=_padded(np.fromiter(chain.from_iterable(p.segments for p in batch), np.int32, tokens), T),
        gather=gather.reshape(B, L),
        scatter=_padded(places, T),
        mask=mask.reshape(B, L),
        firsts=_padded(firsts, B),
        lasts=_padded(firsts + seen - 1, B),
    )


def _up(n: int, steps: Steps) -> int:
    step = next(step for most, step in steps if n <= most)
    return -(-n // step) * step


def _padded(values: Array, length: int) -> Array:
    padded = np.zeros(length, np.int32)
    padded[: len(values)] = values
    return padded
