"""The default engine on x86: a family's graph, compiled by OpenVINO straight from safetensors.

Knows one compiled model and its streams. Does not know what the network is (families/) nor how it is laid out
(openvino_ops.py).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from shoal.families import Prepared, family_named
from shoal.families.finish import finish
from shoal.families.heads import describe
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Item
from shoal.runtimes import Ran, Read
from shoal.runtimes.buckets import pack
from shoal.runtimes.cpu import has_bf16
from shoal.runtimes.silence import silence
from shoal.runtimes.turns import in_turn
from shoal.runtimes.warmup import warm_up

_KERNELS_KEPT = 512
"""Prepared kernels and buffers that are kept for shapes seen; the default of 5,000 lets memory creep up."""

_LONE_KERNELS_KEPT = 64
_LONE_BYTES = 32 * 1024 * 1024
"""Larger matrices are not held twice for the sake of a text that is alone."""


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
        from shoal.runtimes.openvino_bf16 import Bf16Ops
        from shoal.runtimes.openvino_int8 import Int8Ops
        from shoal.runtimes.openvino_ops import OpenVinoOps

        self._facts = facts
        family = family_named(facts.family)
        self._reader = family.open_reader(folder, facts)
        ops = {"int8": Int8Ops, "bf16": Bf16Ops}.get(profile.dtype, OpenVinoOps)()
        described = describe(family, ops, folder, facts)
        model = ops.model(list(described.outputs.values()))
        self._described = described.without_graph()
        self._inputs, self._tables = list(ops.inputs), ops.tables
        compiled = _compile(model, profile, profile.streams, _KERNELS_KEPT)
        self._requests = [compiled.create_infer_request() for _ in range(profile.slots)]
        lone = profile.lone and profile.streams > 1 and _constant_bytes(model) <= _LONE_BYTES
        if lone:
            self._requests.append(_compile(model, profile, 1, _LONE_KERNELS_KEPT).create_infer_request())
        self.profile = msgspec.structs.replace(profile, lone=lone)

    def prepare(self, items: Sequence[Item]) -> list[Read]:
        return self._reader.prepare(items)

    def run(self, batch: Sequence[Prepared], slot: int) -> Ran:
        packed = pack(batch)
        inputs = packed.feed(self._inputs, self._tables)
        request = self._requests[slot]
        found, seconds = in_turn(lambda: request.infer(inputs, share_inputs=True, share_outputs=True))
        named = {name: found[i] for i, name in enumerate(self._described.outputs)}
        values = self._described.completed(named, batch)
        return Ran(finish(values, batch, self._facts), packed.tokens, seconds)


def _constant_bytes(model: Any) -> int:
    return sum(node.get_byte_size() for node in model.get_ops() if node.get_type_name() == "Constant")


def _compile(model: Any, profile: Profile, streams: int, kernels_kept: int) -> Any:
    import openvino

    from shoal.runtimes.openvino_int8 import GROUP

    settings = {
        "INFERENCE_PRECISION_HINT": "bf16" if profile.dtype == "bf16" else "f32",
        "NUM_STREAMS": streams,
        "INFERENCE_NUM_THREADS": profile.threads or profile.streams,
        # Pinned, the replicas of several processes would share one core.
        "ENABLE_CPU_PINNING": False,
        "CPU_RUNTIME_CACHE_CAPACITY": kernels_kept,
        # Of the inputs of 8-bit weights; 0 would leave these as they are, and gain nothing.
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": GROUP if profile.dtype == "int8" else 0,
    }
    return openvino.Core().compile_model(model, profile.device.upper(), settings)
