"""The default engine on x86: a family's graph, compiled by OpenVINO straight from safetensors.

Knows one loaded model: its plain graph, and what computes its adapters. Does not know what the network is
(families/) nor how it is laid out (openvino_ops.py).
"""

import functools
from collections.abc import Sequence
from pathlib import Path

import msgspec

from shoal.families import Prepared, family_named
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Item
from shoal.runtimes import Ran, Read
from shoal.runtimes.adapters import Adapters
from shoal.runtimes.cpu import has_bf16
from shoal.runtimes.silence import silence
from shoal.runtimes.terms import Terms
from shoal.runtimes.warmup import warm_up


def open_runtime(folder: Path, facts: Facts, profile: Profile) -> "OpenVinoRuntime":
    """Raises ModelLoadFailed. bf16 is in force only where the CPU computes it in hardware, else fp32. int8 is in
    force everywhere: without the CPU's instructions for it the weights are widened, slower, to the same numbers.
    """
    if facts.files != "safetensors":
        raise ModelLoadFailed("runtime openvino builds its graph from model.safetensors; this model has none")
    if profile.dtype == "bf16" and not has_bf16():
        profile = msgspec.structs.replace(profile, dtype="fp32")
    runtime = OpenVinoRuntime(folder, facts, profile)
    warm_up(runtime, facts)
    return runtime


class OpenVinoRuntime:
    def __init__(self, folder: Path, facts: Facts, profile: Profile) -> None:
        silence()
        from shoal.runtimes.openvino_graph import OpenVinoGraph

        self._reader = family_named(facts.family).open_reader(folder, facts)
        self._plain = OpenVinoGraph(folder, facts, profile, Terms())
        self.profile = msgspec.structs.replace(profile, lone=self._plain.lone)
        build = functools.partial(OpenVinoGraph, folder, facts, self.profile, weights=self._plain.weights)
        self._adapters = Adapters(self._plain.terms, self._plain.unused, build, self._plain.narrow)

    def prepare(self, items: Sequence[Item]) -> list[Read]:
        return self._reader.prepare(items)

    def run(self, batch: Sequence[Prepared], slot: int) -> Ran:
        is_adapted = any(prepared.item.adapter for prepared in batch)
        return self._adapters.run(batch, slot) if is_adapted else self._plain.run(batch, slot)

    def take_adapter(self, digest: str, folder: Path) -> int:
        return self._adapters.take(digest, folder)

    def drop_adapter(self, digest: str) -> None:
        self._adapters.drop(digest)
