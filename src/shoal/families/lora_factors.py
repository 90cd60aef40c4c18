"""What an adapter adds to a linear, also where that has another name, or is joined with others, in a base's files.

transformers splits and renames some layers of Nomic's and GTE's checkpoints when it loads them; adapters exist
under the names of both. Factors of parts are factors of the whole, of as many times the rank.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.tensors import Array

Sites = Mapping[str, tuple[int, int]]
"""The linears of a base that can be adapted: name → (out, in)."""
_QKV = tuple(f"layers.#.self_attn.{part}_proj" for part in "qkv")
_UP, _GATE, _DOWN = (f"layers.#.mlp.{part}_proj" for part in ("up", "gate", "down"))
_JOINED = {
    "encoder.layers.#.attn.Wqkv": _QKV,
    "encoder.layers.#.attn.out_proj": ("layers.#.self_attn.o_proj",),
    "encoder.layers.#.mlp.fc11": (_UP,),
    "encoder.layers.#.mlp.fc12": (_GATE,),
    "encoder.layers.#.mlp.fc2": (_DOWN,),
    "encoder.layer.#.attention.qkv_proj": _QKV,
    "encoder.layer.#.attention.o_proj": ("layers.#.self_attn.o_proj",),
    "encoder.layer.#.mlp.up_gate_proj": (_UP, _GATE),
    "encoder.layer.#.mlp.down_proj": (_DOWN,),
}
"""A name in the files → the library's, in the order in which their rows are joined; # is the layer's number."""


class Factors(NamedTuple):
    """What an adapter adds to one linear's output: b · (a · x). `a` [rank, in], `b` [out, rank] with the scale in
    it; fp32, finite."""

    a: Array
    b: Array

    @property
    def rank(self) -> int:
        return len(self.a)


class _Join(NamedTuple):
    """`whole` is `parts` one below the other, `rows` of each."""

    whole: str
    parts: tuple[str, ...]
    rows: tuple[int, ...]


def with_other_names(sites: Sites) -> dict[str, tuple[int, int]]:
    """`sites`, and under what other names an adapter may mean them."""
    known = dict(sites)
    for whole, parts, rows in _joins(sites):
        columns = sites[whole if whole in sites else parts[0]][1]
        known.setdefault(whole, (sum(rows), columns))
        for part, count in zip(parts, rows, strict=True):
            known.setdefault(part, (count, columns))
    return known


def as_sites(found: Mapping[str, Factors], sites: Sites) -> dict[str, Factors]:
    """What was found under any of those names, under those of `sites`. Raises ModelLoadFailed for one with two."""
    own = {name: factors for name, factors in found.items() if name in sites}
    for whole, parts, rows in _joins(sites):
        if whole in sites and any(part in found for part in parts):
            meant = {whole: _below_each_other([found.get(part) for part in parts], rows)}
        elif whole not in sites and whole in found:
            a, b = found[whole]
            ends = list(accumulate(rows))
            meant = {p: Factors(a, b[end - n : end]) for p, n, end in zip(parts, rows, ends, strict=True)}
        else:
            continue
        if twice := meant.keys() & own.keys():
            raise ModelLoadFailed(f"layer {min(twice)!r} has factors under two names")
        own |= meant
    return own


def _joins(sites: Sites) -> Iterator[_Join]:
    """Those of which either side is among `sites`."""
    for whole, parts in _JOINED.items():
        for name, (rows, _) in sites.items():
            if (met := _met(whole, name)) and rows % len(parts) == 0:
                yield _Join(name, tuple(met(part) for part in parts), (rows // len(parts),) * len(parts))
            elif (met := _met(parts[0], name)) and all(met(part) in sites for part in parts):
                named = tuple(met(part) for part in parts)
                yield _Join(met(whole), named, tuple(sites[part][0] for part in named))


class _Met(NamedTuple):
    before: str
    number: str

    def __call__(self, pattern: str) -> str:
        return self.before + pattern.replace("#", self.number)


def _met(pattern: str, name: str) -> _Met | None:
    """What makes `name` of that pattern, and another name of another."""
    found = re.fullmatch(r"((?:.*\.)?)" + re.escape(pattern).replace(r"\#", r"(\d+)"), name)
    return None if found is None else _Met(*found.groups())


def _below_each_other(parts: list[Factors | None], rows: tuple[int, ...]) -> Factors:
    """Each part's own ranks beside the others', so that none sees another's."""
    there = [part for part in parts if part is not None]
    b = np.zeros((sum(rows), sum(part.rank for part in there)), np.float32)
    row = rank = 0
    for part, count in zip(parts, rows, strict=True):
        if part is not None:
            b[row : row + count, rank : rank + part.rank] = part.b
            rank += part.rank
        row += count
    return Factors(np.concatenate([part.a for part in there]), b)
