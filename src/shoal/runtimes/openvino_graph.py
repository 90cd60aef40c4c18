"""One network compiled by OpenVINO, and a request for each micro-batch that may be in it at once.

With places for low-rank terms or without. Does not know items, adapters or what the network is.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import openvino as ov

from shoal.families import Prepared, family_named
from shoal.families.finish import finish
from shoal.families.heads import describe
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.tensors import Array
from shoal.runtimes import Ran
from shoal.runtimes.adapters import Adapted
from shoal.runtimes.buckets import FEW, FEWER, pack
from shoal.runtimes.openvino_bf16 import Bf16Ops, rounded
from shoal.runtimes.openvino_int8 import GROUP, Int8Ops
from shoal.runtimes.openvino_ops import OpenVinoOps
from shoal.runtimes.stack import Stack
from shoal.runtimes.terms import Terms
from shoal.runtimes.turns import in_turn

KERNELS_KEPT = 96
"""Prepared kernels of each kind that are kept for shapes seen: a shape's products take 1.3 MB in each stream, and
milliseconds to make. Shapes are rounded so that of fifty passes one at most finds none (`FEW`), and these are all
there within minutes: of 128 the last came after a quarter of an hour, of the default of 5,000 never."""

_ADAPTED_KERNELS_KEPT = 256
"""Of a graph with terms, which has more kinds of products: those of two inputs take 1 ms to make and 0.6 MB, each
for one number of tokens and of columns."""

_LONE_KERNELS_KEPT = 64
_LONE_BYTES = 32 * 1024 * 1024
"""Larger matrices are not held twice for the sake of a text that is alone."""

_INFINITE = 0x7F80
"""The exponent of bf16's infinities and NaN."""


class OpenVinoGraph:
    """`lone`: whether there is a slot more, for a text that is alone: in a second graph that all threads compute,
    or where there are terms, in the same one. `unused` is as in `Described`, `weights` as in `OpenVinoOps`."""

    def __init__(
        self,
        folder: Path,
        facts: Facts,
        profile: Profile,
        terms: Terms,
        weights: dict[bytes, ov.Tensor] | None = None,
    ) -> None:
        """Raises ModelLoadFailed."""
        self.terms, self._facts = terms, facts
        ops = {"int8": Int8Ops, "bf16": Bf16Ops}.get(profile.dtype, OpenVinoOps)(terms, weights)
        described = describe(family_named(facts.family), ops, folder, facts)
        model = ops.model(list(described.outputs.values()))
        self._described, self.unused = described.without_graph(), described.unused
        self._tables, self._narrow, self.weights = ops.tables, ops.narrow, ops.weights
        self._places = {name: place for place, name in enumerate(ops.inputs)}
        factors = {name for place in terms.places for name in (place.a, place.b)}
        self._inputs = {name: place for name, place in self._places.items() if name not in factors}
        self._factors: dict[int, object] = {}
        kept = _ADAPTED_KERNELS_KEPT if terms.targets else KERNELS_KEPT
        compiled = _compile(model, profile, profile.streams, kept)
        self._requests = [compiled.create_infer_request() for _ in range(profile.slots)]
        self.lone = profile.lone and profile.streams > 1 and _constant_bytes(model) <= _LONE_BYTES
        if self.lone:
            alone = compiled if terms.targets else _compile(model, profile, 1, _LONE_KERNELS_KEPT)
            self._requests.append(alone.create_infer_request())

    def run(self, batch: Sequence[Prepared], slot: int, adapted: Adapted | None = None) -> Ran:
        packed, request = pack(batch, FEWER if adapted else FEW), self._requests[slot]
        if adapted and self._factors.get(slot) is not adapted.factors:
            # Kept from pass to pass: to set them costs as much as computing some texts.
            for name, tensor in adapted.factors.items():
                request.set_input_tensor(self._places[name], tensor)
            self._factors[slot] = adapted.factors
        given = packed.feed(self._inputs, self._tables, adapted.masks(packed) if adapted else {})
        fed = dict(zip(self._inputs.values(), given, strict=True))
        found, seconds = in_turn(lambda: request.infer(fed, share_inputs=True, share_outputs=True))
        named = {name: found[i] for i, name in enumerate(self._described.outputs)}
        values = self._described.completed(named, batch)
        return Ran(finish(values, batch, self._facts), packed.tokens, seconds)

    def stack(self) -> Stack:
        dtype = np.float32 if self._narrow == ov.Type.f32 else np.uint16
        return Stack(self.terms.places, dtype, lambda rows: ov.Tensor(rows, ov.Shape(rows.shape), self._narrow))

    def narrow(self, factors: Array) -> Array:
        """fp32 → what terms are fed. Raises ModelLoadFailed where that has no such numbers."""
        if self._narrow == ov.Type.f32:
            return factors
        bits = rounded(factors)
        if (bits & _INFINITE == _INFINITE).any():
            raise ModelLoadFailed("the adapter has values beyond the greatest of bf16, which it would be held in")
        return bits


def _constant_bytes(model: ov.Model) -> int:
    return sum(node.get_byte_size() for node in model.get_ops() if node.get_type_name() == "Constant")


def _compile(model: ov.Model, profile: Profile, streams: int, kernels_kept: int) -> ov.CompiledModel:
    settings = {
        "INFERENCE_PRECISION_HINT": "bf16" if profile.dtype == "bf16" else "f32",
        "NUM_STREAMS": streams,
        "INFERENCE_NUM_THREADS": profile.threads or profile.streams,
        # Pinned, the replicas of several processes would share one core.
        "ENABLE_CPU_PINNING": False,
        "CPU_RUNTIME_CACHE_CAPACITY": kernels_kept,
        # They join attention's steps to one kernel, which is slow where texts are short.
        "SNIPPETS_MODE": "DISABLE",
        # Of the inputs of 8-bit weights; 0 would leave these as they are, and gain nothing.
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": GROUP if profile.dtype == "int8" else 0,
    }
    return ov.Core().compile_model(model, profile.device.upper(), settings)
