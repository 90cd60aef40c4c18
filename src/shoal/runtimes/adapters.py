"""The LoRA adapters that a model holds, and how a micro-batch of several of them becomes passes of one graph.

Knows factors and texts; an engine gives it graphs with places for low-rank terms (terms.py). Adapters are taken
and dropped on one thread while batches run on others: whatever those see is replaced, never changed.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from shoal.families import Part, Prepared
from shoal.families.lora import Factors, read_adapter
from shoal.protocol.errors import InferenceError, ModelLoadFailed
from shoal.protocol.tensors import Array
from shoal.runtimes import Ran
from shoal.runtimes.buckets import Packed
from shoal.runtimes.stack import Held, Stack
from shoal.runtimes.terms import TEXTS, TOKENS, Terms

MOST_COLUMNS = 128
"""Ranks of all adapters of a pass together, above one adapter. Every token is multiplied with all of them; beyond
this, a second pass costs less."""

_NOBODYS = -2
"""Of a text without an adapter; a column that is nobody's has -1."""


class Adapted(NamedTuple):
    """What a graph with places for terms is fed besides the texts. `masks` are made for the arrays they become."""

    factors: Mapping[str, Any]
    """The very same object as in that slot's last pass, where none of these inputs is another."""
    masks: Callable[[Packed], Mapping[str, Array]]


class Graph(Protocol):
    """A compiled network with places for terms."""

    terms: Terms

    def stack(self) -> Stack:
        """An empty one, for one slot."""
        ...

    def run(self, batch: Sequence[Prepared], slot: int, adapted: Adapted) -> Ran: ...


class _Fitted(NamedTuple):
    """A graph, and the stack of each of its slots."""

    graph: Graph
    stacks: dict[int, Stack]


class Adapters:
    """`base` are the terms of the graph without adapters, which know its sites; `unused` what it has no need of.
    `build` compiles the network with terms at such targets; `narrow` makes of fp32 what that graph is fed."""

    def __init__(
        self,
        base: Terms,
        unused: Mapping[str, tuple[int, int]],
        build: Callable[[Terms], Graph],
        narrow: Callable[[Array], Array],
    ) -> None:
        self._parts: dict[str, list[Part]] = {}
        self._sites = dict(unused)
        for part, width in base.sites:
            self._parts.setdefault(part.name, []).append(part)
            self._sites[part.name] = (sum(p.rows for p in self._parts[part.name]), width)
        self._build, self._narrow = build, narrow
        self._held: dict[str, Held] = {}
        self._fitted: _Fitted | None = None

    def take(self, digest: str, folder: Path) -> int:
        """Bytes that its factors take. Raises ModelLoadFailed, and all is as before."""
        if digest not in self._held:
            held = self._read(digest, folder)
            targets = held.targets
            if self._fitted is None or not targets <= self._fitted.graph.terms.targets:
                others = [other.targets for other in self._held.values()]
                self._fitted = _Fitted(self._build(Terms(targets.union(*others))), {})
            self._held = {**self._held, digest: held}
        return self._held[digest].size_bytes

    def drop(self, digest: str) -> None:
        """The graph stays, for the next one: compiling it is what takes long."""
        self._held = {other: held for other, held in self._held.items() if other != digest}

    def run(self, batch: Sequence[Prepared], slot: int) -> Ran:
        """As `Runtime.run`, for a batch in which some name an adapter. Raises InferenceError for one not held."""
        held, fitted = self._held, self._fitted
        named = [prepared.item.adapter for prepared in batch]
        absent = set(named) - held.keys() - {""}
        if absent:  # never computed without the adapter that it names
            raise InferenceError(f"the adapter {min(absent)} is not held by this runtime")
        assert fitted is not None, "there is a graph before there is an adapter"
        stack = fitted.stacks.get(slot) or fitted.stacks.setdefault(slot, fitted.graph.stack())
        rows: dict[int, dict[str, Array]] = {}
        tokens, seconds = 0, 0.0
        for places in passes(named, {digest: held[digest].rank for digest in set(named) - {""}}):
            texts = [batch[place] for place in places]
            there = list(dict.fromkeys(named[place] for place in places if named[place]))
            owners, factors = stack.arrange([held[digest] for digest in there])
            whose = [there.index(named[place]) if named[place] else _NOBODYS for place in places]
            adapted = Adapted(factors, functools.partial(_masks, texts, whose, owners))
            ran = fitted.graph.run(texts, slot, adapted)
            rows |= zip(places, ran.rows, strict=True)
            tokens, seconds = tokens + ran.tokens, seconds + (ran.seconds or 0.0)
        return Ran([rows[place] for place in range(len(batch))], tokens, seconds)

    def _read(self, digest: str, folder: Path) -> Held:
        """Raises ModelLoadFailed."""
        found = read_adapter(folder, self._sites)
        factors = {part: self._cut(found[name], part) for name in found for part in self._parts.get(name, ())}
        if not factors:
            raise ModelLoadFailed(f"the adapter changes only layers that nothing is computed with: {min(found)}")
        return Held.of(digest, factors)

    def _cut(self, factors: Factors, part: Part) -> tuple[Array, Array]:
        a, b = self._narrow(factors.a), self._narrow(factors.b[part.first : part.first + part.rows].T)
        return a, np.ascontiguousarray(b)


def passes(adapters: Sequence[str], ranks: Mapping[str, int]) -> list[list[int]]:
    """Texts, by their adapters ("" for none), in as few passes as `MOST_COLUMNS` allows: lists of their places."""
    if sum(ranks.values()) <= max(MOST_COLUMNS, *ranks.values()):
        return [list(range(len(adapters)))]
    parts: list[list[int]] = [[]]
    columns = 0
    for digest in sorted(set(adapters)):
        rank = ranks.get(digest, 0)
        if columns and columns + rank > MOST_COLUMNS:
            parts.append([])
            columns = 0
        parts[-1] += [place for place, adapter in enumerate(adapters) if adapter == digest]
        columns += rank
    return parts


def _masks(texts: Sequence[Prepared], whose: Sequence[int], owners: Array, packed: Packed) -> dict[str, Array]:
    """For each token and each text (padding too) which columns are its adapter's."""
    of_texts = np.full(len(packed.firsts), _NOBODYS, np.int32)
    of_texts[: len(texts)] = whose
    of_tokens = np.full(packed.tokens, _NOBODYS, np.int32)
    repeated = np.repeat(whose, [prepared.tokens for prepared in texts])
    of_tokens[: len(repeated)] = repeated
    return {TEXTS: of_texts[:, None] == owners, TOKENS: of_tokens[:, None] == owners}
