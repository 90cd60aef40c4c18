"""Linear layers that stand beside a checkpoint, each in a folder of its own: Dense modules and projections.

Applied with an engine's operations inside its graph, or with `InNumpy` outside a graph that lacks them.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from shoal.families import Node
from shoal.families.weights import Checkpoint
from shoal.protocol.facts import Dense
from shoal.protocol.tensors import Array


class Linear(msgspec.Struct, frozen=True):
    """`weight` [out, in], `bias` [out] or none."""

    weight: Array
    bias: Array | None
    activation: str = "identity"


class LinearOps(Protocol):
    """The operations of `Ops` that are needed here."""

    def linear(self, x: Node, weight: Array, bias: Array | None) -> Node: ...
    def gelu(self, x: Node, *, tanh: bool) -> Node: ...
    def relu(self, x: Node) -> Node: ...
    def tanh(self, x: Node) -> Node: ...
    def sigmoid(self, x: Node) -> Node: ...
    def multiply(self, a: Node, b: Node) -> Node: ...


def read_linears(folder: Path, layers: Sequence[Dense]) -> list[Linear]:
    """A layer without a folder is kept in the model's own checkpoint. Raises ModelLoadFailed."""
    read: list[Linear] = []
    for layer in layers:
        checkpoint = Checkpoint(folder / layer.folder)
        weight = checkpoint.weight("linear.weight", -1, len(read[-1].weight) if read else -1)
        bias = checkpoint.weight("linear.bias", len(weight)) if "linear.bias" in checkpoint else None
        read.append(Linear(weight, bias, layer.activation))
    return read


def through(ops: LinearOps, x: Node, layers: Sequence[Linear]) -> Node:
    """x [n, in] through one layer after the other → [n, out]."""
    for layer in layers:
        x = _activated(ops, ops.linear(x, layer.weight, layer.bias), layer.activation)
    return x


def _activated(ops: LinearOps, x: Node, activation: str) -> Node:
    match activation:
        case "tanh":
            return ops.tanh(x)
        case "relu":
            return ops.relu(x)
        case "gelu":
            return ops.gelu(x, tanh=False)
        case "sigmoid":
            return ops.sigmoid(x)
        case "silu":
            return ops.multiply(x, ops.sigmoid(x))
    return x


class InNumpy:
    """`LinearOps` on arrays."""

    def linear(self, x: Array, weight: Array, bias: Array | None) -> Array:
        product: Array = x @ weight.T
        return product if bias is None else product + bias

    def gelu(self, x: Array, *, tanh: bool) -> Array:
        assert not tanh, "no layer asks for the approximation"
        flat = np.fromiter(map(math.erf, (x / math.sqrt(2)).flat), np.float32, x.size)
        return x * (1 + flat.reshape(x.shape)) / 2

    def relu(self, x: Array) -> Array:
        return np.maximum(x, 0)

    def tanh(self, x: Array) -> Array:
        return np.tanh(x)

    def sigmoid(self, x: Array) -> Array:
        """Without overflow, and exact for very negative x too."""
        small = np.exp(-np.abs(x))
        activated: Array = np.where(x >= 0, 1, small) / (1 + small)
        return activated

    def multiply(self, a: Array, b: Array) -> Array:
        return a * b
