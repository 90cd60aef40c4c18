"""Linears whose weights stand in the graph as bf16, as the engine multiplies them anyway: half of what their fp32
would keep in memory beside the engine's own copy.
"""

import hashlib

import numpy as np
import openvino as ov
import openvino.opset13 as op

from shoal.families import Node
from shoal.protocol.tensors import Array
from shoal.runtimes.openvino_ops import OpenVinoOps


class Bf16Ops(OpenVinoOps):
    narrow = ov.Type.bf16

    def product(self, x: Node, weight: Array, bias: Array | None) -> Node:
        wide = op.convert(op.constant(self._held(rounded(weight)), shared_memory=True), "f32")
        wide.get_rt_info()["decompression_0"] = ""  # else the engine folds it back to fp32 at once
        y = op.matmul(x, wide, False, True)
        return y if bias is None else op.add(y, op.constant(bias, shared_memory=True))

    def _held(self, bits: Array) -> ov.Tensor:
        """In memory of the engine's own: a constant made from one of numpy's would not keep that alive."""
        key = hashlib.blake2b(np.array(bits.shape).tobytes() + bits.tobytes(), digest_size=16).digest()
        if key not in self.weights:
            self.weights[key] = ov.Tensor(ov.Type.bf16, ov.Shape(bits.shape))
            self.weights[key].data.view(np.uint16)[...] = bits
        return self.weights[key]


def rounded(weight: Array) -> Array:
    """fp32 → the bits of the nearest bf16, ties to even, as uint16 of the same shape; NaN stays one."""
    bits = np.ascontiguousarray(weight, np.float32).view(np.uint32)
    nearest: Array = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    return np.where(np.isnan(weight), np.uint16(0x7FC0), nearest)
