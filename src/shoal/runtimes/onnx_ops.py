"""`Ops` as ONNX nodes, standard operators only. The same layout as openvino_ops.py: packed linears, padding around
attention and pooling. Knows the `onnx` package; does not know ONNX Runtime or what the network is.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from shoal.families import Node, Over, Part
from shoal.families.weights import Table
from shoal.protocol.tensors import Array
from shoal.runtimes.terms import Place, Terms

_OPSET = 20  # the first with Gelu
_IR_VERSION = 9


class OnnxOps:
    """A node is the name of its output. `inputs` and `tables` fill as the network asks (see Packed.feed)."""

    def __init__(self, terms: Terms | None = None) -> None:
        self.terms = terms or Terms()
        self.inputs: dict[str, Node] = {}
        self.tables: dict[str, Table] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._widths: dict[str, int] = {}

    def model(self, outputs: Sequence[Node]) -> bytes:
        given = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None) for output in outputs]
        graph = helper.make_graph(
            self._nodes, "encoder", list(self.inputs.values()), given, initializer=self._constants
        )
        opsets = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
        serialized: bytes = model.SerializeToString()
        return serialized

    @functools.cached_property
    def positions(self) -> Node:
        return self._input("positions", 1)

    @functools.cached_property
    def segments(self) -> Node:
        return self._input("segments", 1)

    def words(self, table: Table) -> Node:
        name = f"words{len(self.tables)}"
        self.tables[name] = table
        return self._input(name, 2, TensorProto.FLOAT)

    def rows(self, table: Array, index: Node) -> Node:
        return self._node("Gather", self._constant(table), index)

    def linear(
        self, x: Node, weight: Array, bias: Array | None, parts: Sequence[Part] = (), *, of_texts: bool = False
    ) -> Node:
        y = self.terms.linear(self, x, weight, bias, parts, of_texts)
        self._widths[y] = len(weight)
        return y

    def product(self, x: Node, weight: Array, bias: Array | None) -> Node:
        biases = [] if bias is None else [self._constant(bias)]
        return self._node("Gemm", x, self._constant(weight), *biases, transB=1)

    def term(self, x: Node, place: Place) -> Node:
        if place.mask not in self.inputs:
            self._input(place.mask, 2, TensorProto.BOOL)
        count = len(place.parts)
        a, b = (self._input(name, 2 if count == 1 else 3, TensorProto.FLOAT) for name in (place.a, place.b))
        across = self._node("Transpose", a, perm=[1, 0] if count == 1 else [0, 2, 1])  # joins the product
        # Chosen, not multiplied by 0: that would make NaN of another adapter's infinity.
        nothing = self._constant(np.array(0, np.float32))
        own = self._node("Where", place.mask, self._node("MatMul", x, across), nothing)
        y = self._node("MatMul", own, b)
        if count == 1:
            return y
        apart = self._node("Transpose", y, perm=[1, 0, 2])
        return self._node("Reshape", apart, self._integers(0, count * place.rows))

    def joined(self, parts: Sequence[Node]) -> Node:
        return self._node("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]

    def add(self, a: Node, b: Node) -> Node:
        return self._node("Add", a, b)

    def multiply(self, a: Node, b: Node) -> Node:
        return self._node("Mul", a, b)

    def norm(self, x: Node, weight: Array, bias: Array | None, eps: float) -> Node:
        parts = [self._constant(part) for part in (weight, bias) if part is not None]
        return self._node("LayerNormalization", x, *parts, axis=-1, epsilon=eps)

    def gelu(self, x: Node, *, tanh: bool) -> Node:
        return self._node("Gelu", x, approximate="tanh" if tanh else "none")

    def relu(self, x: Node) -> Node:
        return self._node("Relu", x)

    def tanh(self, x: Node) -> Node:
        return self._node("Tanh", x)

    def sigmoid(self, x: Node) -> Node:
        return self._node("Sigmoid", x)

    def rotated(self, qkv: Node, heads: int, cos: Node, sin: Node) -> Node:
        width = self._widths[qkv]
        apart = self._node("Reshape", qkv, self._integers(0, 3 * heads, width // heads // 3))
        turning, values = self._split(apart, 1, 2 * heads, heads)
        a, b = self._split(turning, 2, *[width // heads // 6] * 2)
        cos, sin = (self._node("Unsqueeze", x, self._integers(1)) for x in (cos, sin))
        first = self._node("Sub", self.multiply(a, cos), self.multiply(b, sin))
        second = self.add(self.multiply(b, cos), self.multiply(a, sin))
        turned = self._node("Concat", self._node("Concat", first, second, axis=2), values, axis=1)
        y = self._node("Reshape", turned, self._integers(0, width))
        self._widths[y] = width
        return y

    def within(self, reach: int) -> Node:
        near = self._node("LessOrEqual", self._node("Abs", self._distances), self._integer(reach))
        zero, least = self._constant(np.array(0, np.float32)), self._constant(np.array(np.finfo(np.float32).min))
        return self._node("Where", self._node("And", self._is_key, near), zero, least)

    def relative(self, table: Array) -> Node:
        reach = len(table) // 2
        clipped = self._node("Clip", self._distances, self._integer(-reach), self._integer(reach))
        index = self.add(clipped, self._integer(reach))
        bias = self._node("Transpose", self._node("Gather", self._constant(table), index), perm=[2, 0, 1])
        return self._node("Where", self._is_key, bias, self._constant(np.array(np.finfo(np.float32).min)))

    def attention(self, qkv: Node, heads: int, look: Node | None = None) -> Node:
        depth = self._widths[qkv] // 3 // heads
        padded = self._node("Reshape", self._laid_out(qkv), self._integers(0, 0, 3, heads, depth))
        q, k, v = (
            self._node("Gather", self._node("Transpose", padded, perm=[2, 0, 3, *last]), self._integer(i))
            for i, last in enumerate(([1, 4], [4, 1], [1, 4]))
        )
        q = self._node("Mul", q, self._constant(np.array(depth**-0.5, np.float32)))
        seen = self._node("Softmax", self.add(self._node("MatMul", q, k), look or self._bias), axis=-1)
        mixed = self._node("Transpose", self._node("MatMul", seen, v), perm=[0, 2, 1, 3])
        return self._node("Gather", self._node("Flatten", mixed, axis=2), self._scatter)

    def pool(self, x: Node, over: Over) -> Node:
        if over in ("cls", "last"):
            return self._node("Gather", x, self._firsts if over == "cls" else self._lasts)
        if over == "max":
            is_token = self._node("Cast", self._column(self._mask), to=TensorProto.BOOL)
            least = self._constant(np.array(np.finfo(np.float32).min))
            seen = self._node("Where", is_token, self._laid_out(x), least)
            return self._node("ReduceMax", seen, self._integers(1), keepdims=0)
        weights = self._column(self._ordinals if over == "weighted_mean" else self._mask)
        summed, count = self._sum(self._node("Mul", self._laid_out(x), weights)), self._sum(weights)
        if over == "sum":
            return summed
        return self._node("Div", summed, self._node("Sqrt", count) if over == "mean_sqrt_len" else count)

    def _column(self, x: Node) -> Node:
        """[texts, length] → [texts, length, 1]."""
        return self._node("Unsqueeze", x, self._integers(2))

    def _sum(self, x: Node) -> Node:
        return self._node("ReduceSum", x, self._integers(1), keepdims=0)

    def _laid_out(self, x: Node) -> Node:
        """[tokens, width] → [texts, length, width]."""
        return self._node("Gather", x, self._gather)

    @functools.cached_property
    def _bias(self) -> Node:
        """[texts, 1, 1, length]: 0 for keys that may be looked at, fp32's least number for the others."""
        absent = self._node("Sub", self._mask, self._constant(np.array(1, np.float32)))
        bias = self._node("Mul", absent, self._constant(np.array(np.finfo(np.float32).max)))
        return self._node("Unsqueeze", bias, self._integers(1, 2))

    @functools.cached_property
    def _is_key(self) -> Node:
        """[texts, 1, 1, length] boolean: which keys may be looked at."""
        return self._node("Cast", self._node("Unsqueeze", self._mask, self._integers(1, 2)), to=TensorProto.BOOL)

    @functools.cached_property
    def _distances(self) -> Node:
        """[length, length] int64: how many places key j stands after query i."""
        length = self._node("Gather", self._node("Shape", self._gather), self._integer(1))
        places = self._node("Range", self._integer(0), length, self._integer(1))
        across, down = (self._node("Unsqueeze", places, self._integers(axis)) for axis in (0, 1))
        return self._node("Sub", across, down)

    @functools.cached_property
    def _gather(self) -> Node:
        return self._input("gather", 2)

    @functools.cached_property
    def _scatter(self) -> Node:
        return self._input("scatter", 1)

    @functools.cached_property
    def _firsts(self) -> Node:
        return self._input("firsts", 1)

    @functools.cached_property
    def _lasts(self) -> Node:
        return self._input("lasts", 1)

    @functools.cached_property
    def _ordinals(self) -> Node:
        return self._input("ordinals", 2, TensorProto.FLOAT)

    @functools.cached_property
    def _mask(self) -> Node:
        return self._input("mask", 2, TensorProto.FLOAT)

    def _input(self, name: str, rank: int, dtype: int = TensorProto.INT32) -> Node:
        self.inputs[name] = helper.make_tensor_value_info(name, dtype, [None] * rank)
        return name

    def _node(self, kind: str, *inputs: Node, **attributes: Any) -> Node:
        name = f"{kind}{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def _split(self, x: Node, axis: int, *sizes: int) -> list[Node]:
        names = [f"Split{len(self._nodes)}_{i}" for i in range(len(sizes))]
        self._nodes.append(helper.make_node("Split", [x, self._integers(*sizes)], names, axis=axis))
        return names

    def _constant(self, array: Array) -> Node:
        name = f"constant{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def _integers(self, *values: int) -> Node:
        return self._constant(np.array(values, np.int64))

    def _integer(self, value: int) -> Node:
        return self._constant(np.array(value, np.int64))
