"""`Ops` in OpenVINO's graph. Linears run on packed tokens; texts are laid out with padding around attention and
pooling only. Knows OpenVINO's operations; does not know devices, streams or what the network is.
"""

import functools

import numpy as np
import openvino as ov
import openvino.opset13 as op

from shoal.families import Node
from shoal.protocol.tensors import Array


class OpenVinoOps:
    """`inputs` fills as the network asks for them, each named like a field of `Packed` or one of `tables`: the
    vocabulary's rows are looked up outside, in the mapped file, so that no engine holds a copy of them."""

    def __init__(self) -> None:
        self.inputs: dict[str, Node] = {}
        self.tables: dict[str, Array] = {}

    def model(self, output: Node) -> ov.Model:
        return ov.Model([output], list(self.inputs.values()), "encoder")

    ids: Node = "ids"

    @functools.cached_property
    def positions(self) -> Node:
        return self._input("positions", [-1])

    @functools.cached_property
    def segments(self) -> Node:
        return self._input("segments", [-1])

    def rows(self, table: Array, index: Node) -> Node:
        if index is self.ids:
            name = f"rows{len(self.tables)}"
            self.tables[name] = table
            return self._input(name, [-1, table.shape[1]], np.float32)
        return op.gather(_constant(table), index, 0)

    def linear(self, x: Node, weight: Array, bias: Array) -> Node:
        return op.add(op.matmul(x, _constant(weight), False, True), _constant(bias))

    def add(self, a: Node, b: Node) -> Node:
        return op.add(a, b)

    def norm(self, x: Node, weight: Array, bias: Array, eps: float) -> Node:
        centred = op.mvn(x, [-1], True, eps, "inside_sqrt")
        return op.add(op.multiply(centred, _constant(weight)), _constant(bias))

    def gelu(self, x: Node, *, tanh: bool) -> Node:
        return op.gelu(x, "tanh" if tanh else "erf")

    def relu(self, x: Node) -> Node:
        return op.relu(x)

    def tanh(self, x: Node) -> Node:
        return op.tanh(x)

    def attention(self, qkv: Node, heads: int) -> Node:
        width = qkv.get_output_partial_shape(0)[1].get_length() // 3
        padded = op.reshape(self._laid_out(qkv), [0, 0, 3, heads, width // heads], True)
        apart = op.split(op.transpose(padded, [2, 0, 3, 1, 4]), 0, 3)
        q, k, v = (op.squeeze(part, [0]) for part in apart.outputs())
        seen = op.scaled_dot_product_attention(q, k, v, self._is_token)
        return op.gather(op.reshape(op.transpose(seen, [0, 2, 1, 3]), [-1, width], False), self._scatter, 0)

    def first(self, x: Node) -> Node:
        return op.gather(x, self._firsts, 0)

    def mean(self, x: Node) -> Node:
        weights = op.unsqueeze(self._mask, [2])
        summed = op.reduce_sum(op.multiply(self._laid_out(x), weights), [1])
        return op.divide(summed, op.reduce_sum(weights, [1]))

    def _laid_out(self, x: Node) -> Node:
        """[tokens, width] → [texts, length, width]."""
        return op.gather(x, self._gather, 0)

    @functools.cached_property
    def _is_token(self) -> Node:
        """[texts, 1, 1, length]: which keys may be looked at. A boolean, so that no dtype's minimum matters."""
        return op.convert(op.unsqueeze(self._mask, [1, 2]), "boolean")

    @functools.cached_property
    def _gather(self) -> Node:
        return self._input("gather", [-1, -1])

    @functools.cached_property
    def _scatter(self) -> Node:
        return self._input("scatter", [-1])

    @functools.cached_property
    def _firsts(self) -> Node:
        return self._input("firsts", [-1])

    @functools.cached_property
    def _mask(self) -> Node:
        return self._input("mask", [-1, -1], np.float32)

    def _input(self, name: str, shape: list[int], dtype: type = np.int32) -> Node:
        self.inputs[name] = op.parameter(shape, dtype, name=name)
        return self.inputs[name]


def _constant(array: Array) -> Node:
    return op.constant(array, shared_memory=True)
