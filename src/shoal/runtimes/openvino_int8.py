"""`Ops` in OpenVINO's graph with 8-bit weights, made from the checkpoint with no calibration.

Each row of a linear's weight becomes whole numbers within ±127 and one scale. The engine quantises what comes in
likewise, each token by itself in groups of `GROUP` values, so that its neighbours in a batch do not matter.
"""

import numpy as np
import openvino.opset13 as op

from shoal.families import Node
from shoal.protocol.tensors import Array
from shoal.runtimes.openvino_ops import OpenVinoOps

GROUP = 64
_MOST = 127


class Int8Ops(OpenVinoOps):
    def product(self, x: Node, weight: Array, bias: Array | None) -> Node:
        """The engine recognises this pattern and multiplies in 8 bits: Constant → Convert → Multiply → MatMul."""
        whole, scale = quantised(weight)
        narrow = op.convert(op.constant(whole, shared_memory=True), "f32")
        wide = op.multiply(narrow, op.constant(scale, shared_memory=True))
        y = op.matmul(x, wide, False, True)
        return y if bias is None else op.add(y, op.constant(bias, shared_memory=True))


def quantised(weight: Array) -> tuple[Array, Array]:
    """weight [out, in] → int8 [out, in] and fp32 scales [out, 1], whose product it nearly is."""
    most = np.abs(weight).max(axis=1, keepdims=True)
    scale = (np.where(most > 0, most, _MOST) / _MOST).astype(np.float32)
    whole: Array = np.rint(weight / scale).astype(np.int8)
    return whole, scale
