"""`Ops` that compute nothing: a node is its width, so that a network described against them is checked, not built.

Says whether a checkpoint's weights fit each other and what will be looked up in them. Called when a
model is added.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from shoal.families import Family, Over, Part
from shoal.families.heads import describe
from shoal.families.tokenize import TextReader, load_tokenizer
from shoal.families.weights import Table
from shoal.protocol.errors import ModelLoadFailed, ShoalError
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item
from shoal.protocol.tensors import Array

_Index = Literal["token ids", "positions", "segments"]


def check_reader(folder: Path, facts: Facts) -> None:
    """Raises ModelLoadFailed where tokenizer.json is none, or leaves no room for a text beside its markers."""
    reader = TextReader(load_tokenizer(folder), facts)
    pair = "a" if facts.reads_pairs else None
    for is_query in (False, True):
        (read,) = reader.prepare([Item("a", pair=pair, kinds=facts.kinds, is_query=is_query)])
        if isinstance(read, ShoalError):
            raise ModelLoadFailed(f"not even one letter can be read: {read.message}")


def check_network(family: Family, folder: Path, facts: Facts) -> None:
    """Raises ModelLoadFailed where the checkpoint in `folder` is not the network that `facts` promise, or its
    tokenizer says what it has no rows for.
    """
    tokenizer = load_tokenizer(folder)
    reader = TextReader(tokenizer, facts)
    highest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    rows: dict[_Index, int] = {
        "token ids": max(highest, reader.highest_marker) + 1,
        "positions": facts.max_tokens,
        "segments": reader.segments,
    }
    try:
        described = describe(family, Shapes(rows), folder, facts)
    except ShoalError:
        raise
    except Exception as e:  # a setting of another type than it has; where that shows depends on the family
        raise ModelLoadFailed(f"config.json does not describe a {facts.family}: {e}") from e
    wanted = {"dense": facts.dims, "score": max(1, len(facts.labels))}
    if facts.multivector is not None:
        wanted["multivector"] = facts.multivector.dims
    for name, width in described.outputs.items():
        if wanted.get(name, width) != width:
            raise ModelLoadFailed(
                f"the weights give a {name} of {width} numbers, and {wanted[name]} are described"
            )


def sites_of(family: Family, folder: Path, facts: Facts) -> dict[str, tuple[int, int]]:
    """(out, in) of each linear that an adapter may change, by its name in the files. Raises ModelLoadFailed."""
    shapes = Shapes({"token ids": 0, "positions": 0, "segments": 0})
    described = describe(family, shapes, folder, facts)
    return described.unused | shapes.sites


class Shapes:
    """`Ops`. A node is a width, or what rows are looked up by; `rows` says how many of each there have to be.
    `sites` are the linears met, (out, in) by their names."""

    positions: _Index = "positions"
    segments: _Index = "segments"

    def __init__(self, rows: dict[_Index, int]) -> None:
        self._rows = rows
        self.sites: dict[str, tuple[int, int]] = {}

    def words(self, table: Table) -> int:
        self._look_up(table.shape[0], "token ids")
        return table.shape[1]

    def rows(self, table: Array, index: _Index) -> int:
        self._look_up(len(table), index)
        return int(table.shape[1])

    def linear(
        self, x: int, weight: Array, bias: Array | None, parts: Sequence[Part] = (), *, of_texts: bool = False
    ) -> int:
        if weight.shape[1] != x:
            raise ModelLoadFailed(f"a weight of {weight.shape[1]} columns is to read {x} numbers")
        for part in parts:
            self.sites[part.name] = self.sites.get(part.name, (0, x))[0] + part.rows, x
        self._check_finite(weight, bias)
        return len(weight)

    def add(self, a: int, b: int) -> int:
        if a != b:
            raise ModelLoadFailed(f"{a} numbers are to be put together with {b}")
        return a

    multiply = add

    def norm(self, x: int, weight: Array, bias: Array | None, eps: float) -> int:
        self._check_finite(weight, bias)
        return self.add(x, len(weight))

    def gelu(self, x: int, *, tanh: bool) -> int:
        return x

    def relu(self, x: int) -> int:
        return x

    tanh = sigmoid = relu

    def rotated(self, qkv: int, heads: int, cos: int, sin: int) -> int:
        self.add(qkv, 3 * heads * (cos + sin))
        return qkv

    def within(self, reach: int) -> None:
        """Looks, not numbers."""

    def relative(self, table: Array) -> None:
        """Looks, not numbers."""

    def attention(self, qkv: int, heads: int, look: Any = None) -> int:
        return qkv // 3

    def pool(self, x: int, over: Over) -> int:
        return x

    def _check_finite(self, *weights: Array | None) -> None:
        if not all(np.isfinite(weight).all() for weight in weights if weight is not None):
            raise ModelLoadFailed("a weight that every text goes through is not finite")

    def _look_up(self, rows: int, index: _Index) -> None:
        if rows < self._rows[index]:
            raise ModelLoadFailed(f"there are {rows} rows for {self._rows[index]} {index}")
