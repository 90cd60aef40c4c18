"""ONNX Runtime: the default engine where OpenVINO has no fast kernels, and the one for published ONNX files.

Knows one session. A graph is either built here from safetensors (onnx_ops.py) or published (onnx_published.py).
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from shoal.families import Prepared, family_named
from shoal.families.finish import finish
from shoal.families.heads import describe
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Item
from shoal.runtimes import Ran, Read, Runtime
from shoal.runtimes.buckets import pack
from shoal.runtimes.onnx_published import PublishedRuntime
from shoal.runtimes.onnx_session import open_session
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
        try:
            from shoal.runtimes.onnx_ops import OnnxOps
        except ModuleNotFoundError as e:
            raise ModelLoadFailed("ONNX graphs are built with the onnx package: pip install 'shoal[onnx]'") from e
        # ONNX Runtime has no bf16 products on CPUs.
        self.profile = msgspec.structs.replace(profile, dtype="fp32")
        self._facts = facts
        family = family_named(facts.family)
        self._reader = family.open_reader(folder, facts)
        ops = OnnxOps()
        described = describe(family, ops, folder, facts)
        self._session = open_session(ops.model(list(described.outputs.values())), profile)
        self._described = described.without_graph()
        self._inputs, self._tables = list(ops.inputs), ops.tables

    def prepare(self, items: Sequence[Item]) -> list[Read]:
        return self._reader.prepare(items)

    def run(self, batch: Sequence[Prepared], stream: int) -> Ran:
        packed = pack(batch)
        inputs = dict(zip(self._inputs, packed.feed(self._inputs, self._tables), strict=True))
        values, seconds = in_turn(lambda: self._session.run(None, inputs))
        found = dict(zip(self._described.outputs, values, strict=True))
        completed = self._described.completed(found, batch)
        return Ran(finish(completed, batch, self._facts), packed.tokens, seconds)
