"""`Ops` in OpenVINO's graph. Linears run on packed tokens; texts are laid out with padding around attention and
pooling only. Knows OpenVINO's operations; does not know devices, streams or what the network is.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino as ov
import openvino.opset13 as op

from shoal.families import Node, Over, Part
from shoal.families.weights import Table
from shoal.protocol.tensors import Array
from shoal.runtimes.terms import Place, Terms

_ZERO = np.array(0, np.float32)
_LEAST = np.array(-3.3895314e38, np.float32)
"""bf16's least number: fp32's own would be infinite there."""


class OpenVinoOps:
    """`inputs` fills as the network asks for them, each named like a field of `Packed` or one of `tables`: the
    vocabulary's rows are looked up outside, in the mapped file, so that no engine holds a copy of them."""

    narrow = ov.Type.f32
    """Of the factors that terms are fed."""

    def __init__(self, terms: Terms | None = None, weights: dict[bytes, ov.Tensor] | None = None) -> None:
        """`weights` are those in memory already, by their contents: of a model's two graphs each is held once."""
        self.terms = terms or Terms()
        self.weights = {} if weights is None else weights
        self.inputs: dict[str, Node] = {}
        self.tables: dict[str, Table] = {}

    def model(self, outputs: Sequence[Node]) -> ov.Model:
        return ov.Model(list(outputs), list(self.inputs.values()), "encoder")

    @functools.cached_property
    def positions(self) -> Node:
        return self._input("positions", [-1])

    @functools.cached_property
    def segments(self) -> Node:
        return self._input("segments", [-1])

    def words(self, table: Table) -> Node:
        name = f"words{len(self.tables)}"
        self.tables[name] = table
        return self._input(name, [-1, table.shape[1]], np.float32)

    def rows(self, table: Array, index: Node) -> Node:
        return op.gather(_constant(table), index, 0)

    def linear(
        self, x: Node, weight: Array, bias: Array | None, parts: Sequence[Part] = (), *, of_texts: bool = False
    ) -> Node:
        return self.terms.linear(self, x, weight, bias, parts, of_texts)

    def product(self, x: Node, weight: Array, bias: Array | None) -> Node:
        y = op.matmul(x, _constant(weight), False, True)
        return y if bias is None else op.add(y, _constant(bias))

    def term(self, x: Node, place: Place) -> Node:
        count = len(place.parts)
        a, b = (self._factors(n, count, w) for n, w in ((place.a, place.width), (place.b, place.rows)))
        if place.mask not in self.inputs:
            self._input(place.mask, [-1, -1], np.bool_)
        # Chosen, not multiplied by 0: that would make NaN of another adapter's infinity.
        own = op.select(self.inputs[place.mask], op.matmul(x, a, False, True), _constant(_ZERO))
        y = op.matmul(own, b, False, False)
        return y if count == 1 else op.reshape(op.transpose(y, [1, 0, 2]), [0, count * place.rows], True)

    def joined(self, parts: Sequence[Node]) -> Node:
        return op.concat(list(parts), 1) if len(parts) > 1 else parts[0]

    def _factors(self, name: str, count: int, width: int) -> Node:
        given = self._input(name, [-1, width] if count == 1 else [count, -1, width], self.narrow)
        return given if self.narrow == ov.Type.f32 else op.convert(given, "f32")

    def add(self, a: Node, b: Node) -> Node:
        return op.add(a, b)

    def multiply(self, a: Node, b: Node) -> Node:
        return op.multiply(a, b)

    def norm(self, x: Node, weight: Array, bias: Array | None, eps: float) -> Node:
        y = op.multiply(op.mvn(x, [-1], True, eps, "inside_sqrt"), _constant(weight))
        return y if bias is None else op.add(y, _constant(bias))

    def gelu(self, x: Node, *, tanh: bool) -> Node:
        return op.gelu(x, "tanh" if tanh else "erf")

    def relu(self, x: Node) -> Node:
        """Not the engine's own, which makes 0 of a NaN."""
        return op.multiply(x, op.convert(op.greater(x, _constant(_ZERO)), "f32"))

    def tanh(self, x: Node) -> Node:
        return op.tanh(x)

    def sigmoid(self, x: Node) -> Node:
        return op.sigmoid(x)

    def rotated(self, qkv: Node, heads: int, cos: Node, sin: Node) -> Node:
        width = qkv.get_output_partial_shape(0)[1].get_length()
        apart = op.reshape(qkv, [0, 3 * heads, width // heads // 3], True)
        turning, values = op.variadic_split(apart, 1, [2 * heads, heads]).outputs()
        a, b = op.split(turning, 2, 2).outputs()
        cos, sin = op.unsqueeze(cos, [1]), op.unsqueeze(sin, [1])
        first = op.subtract(op.multiply(a, cos), op.multiply(b, sin))
        second = op.add(op.multiply(b, cos), op.multiply(a, sin))
        turned = op.concat([op.concat([first, second], 2), values], 1)
        return op.reshape(turned, [0, width], True)

    def within(self, reach: int) -> Node:
        near = op.less_equal(op.abs(self._distances), _constant(np.array(reach, np.int32)))
        seen = op.logical_and(op.unsqueeze(self._is_token, [1, 2]), near)
        return op.select(seen, _constant(_ZERO), _constant(_LEAST))

    def relative(self, table: Array) -> Node:
        reach = len(table) // 2
        index = op.add(op.clamp(self._distances, -reach, reach), _constant(np.array(reach, np.int32)))
        bias = op.transpose(op.gather(_constant(table), index, 0), [2, 0, 1])
        return op.select(op.unsqueeze(self._is_token, [1, 2]), bias, _constant(_LEAST))

    def attention(self, qkv: Node, heads: int, look: Node | None = None) -> Node:
        """Step by step: of `scaled_dot_product_attention` the engine makes a kernel that takes twice as long where
        texts are short."""
        width = qkv.get_output_partial_shape(0)[1].get_length() // 3
        padded = op.reshape(self._laid_out(qkv), [0, 0, 3, heads, width // heads], True)
        apart = op.split(op.transpose(padded, [2, 0, 3, 1, 4]), 0, 3)
        q, k, v = (op.squeeze(part, [0]) for part in apart.outputs())
        scale = _constant(np.array((width // heads) ** -0.5, np.float32))
        scores = op.add(op.multiply(op.matmul(q, k, False, True), scale), self._look if look is None else look)
        seen = op.matmul(op.softmax(scores, -1), v, False, False)
        return op.gather(op.reshape(op.transpose(seen, [0, 2, 1, 3]), [-1, width], False), self._scatter, 0)

    def pool(self, x: Node, over: Over) -> Node:
        if over == "cls":
            return op.gather(x, self._firsts, 0)
        if over == "last":
            return op.gather(x, self._lasts, 0)
        if over == "max":
            least, most = _constant(np.array(np.finfo(np.float32).min)), _constant(np.array(np.inf, np.float32))
            states = self._laid_out(x)
            states = op.select(op.is_nan(states), most, states)  # the engine's maximum passes over a NaN
            return op.reduce_max(op.select(op.unsqueeze(self._is_token, [2]), states, least), [1])
        weights = op.unsqueeze(self._ordinals if over == "weighted_mean" else self._mask, [2])
        summed, count = op.reduce_sum(op.multiply(self._laid_out(x), weights), [1]), op.reduce_sum(weights, [1])
        if over == "sum":
            return summed
        return op.divide(summed, op.sqrt(count) if over == "mean_sqrt_len" else count)

    def _laid_out(self, x: Node) -> Node:
        """[tokens, width] → [texts, length, width]."""
        return op.gather(x, self._gather, 0)

    @functools.cached_property
    def _is_token(self) -> Node:
        """[texts, length]. A boolean, so that no dtype's minimum matters."""
        return op.convert(self._mask, "boolean")

    @functools.cached_property
    def _look(self) -> Node:
        """[texts, 1, 1, length]: what is added to the scores of each key."""
        return op.select(op.unsqueeze(self._is_token, [1, 2]), _constant(_ZERO), _constant(_LEAST))

    @functools.cached_property
    def _distances(self) -> Node:
        """[length, length] int32: how many places key j stands after query i."""
        length = op.squeeze(op.gather(op.shape_of(self._gather, "i32"), [1], 0), [0])
        places = op.range(0, length, 1, "i32")
        return op.subtract(op.unsqueeze(places, [0]), op.unsqueeze(places, [1]))

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
    def _lasts(self) -> Node:
        return self._input("lasts", [-1])

    @functools.cached_property
    def _ordinals(self) -> Node:
        return self._input("ordinals", [-1, -1], np.float32)

    @functools.cached_property
    def _mask(self) -> Node:
        return self._input("mask", [-1, -1], np.float32)

    def _input(self, name: str, shape: list[int], dtype: Any = np.int32) -> Node:
        self.inputs[name] = op.parameter(shape, dtype, name=name)
        return self.inputs[name]


def _constant(array: Array) -> Node:
    return op.constant(array, shared_memory=True)
