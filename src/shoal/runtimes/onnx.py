"""ONNX Runtime: the default engine where OpenVINO has no fast kernels, and the one for published ONNX files.

Knows one session. A graph is either built here from safetensors (onnx_ops.py) or published (onnx_published.py).
"""

import functools
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from shoal.families import Prepared, family_named
from shoal.families.finish import finish
from shoal.families.heads import describe
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Item
from shoal.runtimes import Ran, Read, Runtime
from shoal.runtimes.adapters import Adapted, Adapters
from shoal.runtimes.buckets import pack
from shoal.runtimes.onnx_published import PublishedRuntime
from shoal.runtimes.onnx_session import open_session
from shoal.runtimes.stack import Stack
from shoal.runtimes.terms import Terms
from shoal.runtimes.turns import in_turn
from shoal.runtimes.warmup import warm_up


def open_runtime(folder: Path, facts: Facts, profile: Profile) -> Runtime:
    """Raises ModelLoadFailed. The profile in force says fp32, or int8 where the published graph is that."""
    if facts.files == "none":
        raise ModelLoadFailed("this model has no files for ONNX Runtime to run")
    kind = PublishedRuntime if facts.files == "onnx" else BuiltRuntime
    runtime: Runtime = kind(folder, facts, profile)
    warm_up(runtime, facts)
    return runtime


class BuiltRuntime:
    def __init__(self, folder: Path, facts: Facts, profile: Profile) -> None:
        # ONNX Runtime has no bf16 products on CPUs.
        self.profile = msgspec.structs.replace(profile, dtype="fp32")
        self._reader = family_named(facts.family).open_reader(folder, facts)
        self._plain = BuiltGraph(folder, facts, profile, Terms())
        build = functools.partial(BuiltGraph, folder, facts, profile)
        self._adapters = Adapters(self._plain.terms, self._plain.unused, build, narrow=lambda factors: factors)

    def prepare(self, items: Sequence[Item]) -> list[Read]:
        return self._reader.prepare(items)

    def run(self, batch: Sequence[Prepared], stream: int) -> Ran:
        is_adapted = any(prepared.item.adapter for prepared in batch)
        return self._adapters.run(batch, stream) if is_adapted else self._plain.run(batch, stream)

    def take_adapter(self, digest: str, folder: Path) -> int:
        return self._adapters.take(digest, folder)

    def drop_adapter(self, digest: str) -> None:
        self._adapters.drop(digest)


class BuiltGraph:
    """One session, with places for low-rank terms or without. `unused` is as in `Described`."""

    def __init__(self, folder: Path, facts: Facts, profile: Profile, terms: Terms) -> None:
        """Raises ModelLoadFailed."""
        try:
            from shoal.runtimes.onnx_ops import OnnxOps
        except ModuleNotFoundError as e:
            raise ModelLoadFailed("ONNX graphs are built with the onnx package: pip install 'shoal[onnx]'") from e
        self.terms, self._facts = terms, facts
        ops = OnnxOps(terms)
        described = describe(family_named(facts.family), ops, folder, facts)
        self._session = open_session(ops.model(list(described.outputs.values())), profile)
        self._described, self.unused = described.without_graph(), described.unused
        self._inputs, self._tables = list(ops.inputs), ops.tables

    def run(self, batch: Sequence[Prepared], slot: int, adapted: Adapted | None = None) -> Ran:
        packed = pack(batch)
        more = {**adapted.factors, **adapted.masks(packed)} if adapted else {}
        fed = packed.feed(self._inputs, self._tables, more)
        named = dict(zip(self._inputs, fed, strict=True))
        values, seconds = in_turn(lambda: self._session.run(None, named))
        found = dict(zip(self._described.outputs, values, strict=True))
        completed = self._described.completed(found, batch)
        return Ran(finish(completed, batch, self._facts), packed.tokens, seconds)

    def stack(self) -> Stack:
        return Stack(self.terms.places, np.float32, wrap=lambda rows: rows)
