"""Rotary positions: queries and keys are turned by angles that grow with a token's place (arXiv:2104.09864).

The angles are looked up in a table made in fp64, because a product of a long text's place would not survive bf16.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from shoal.families import Node
from shoal.families.layers import Layers
from shoal.protocol.errors import ModelLoadFailed


class Rotary:
    """For all layers of one network that turn alike."""

    def __init__(self, layers: Layers, length: int, rope: Mapping[str, Any]) -> None:
        """`length` places are told apart, `rope` says rope_theta. Raises ModelLoadFailed for what it says else."""
        kind = rope.get("rope_type") or rope.get("type") or "default"
        if kind != "default" or rope.get("partial_rotary_factor", 1.0) != 1.0:
            raise ModelLoadFailed(f"rotary positions of type {kind!r} are not known here: {dict(rope)}")
        depth = layers.width // layers.heads
        speeds = float(rope["rope_theta"]) ** (-np.arange(0, depth, 2) / depth)
        angles = np.arange(length)[:, None] * speeds
        self._ops, self._heads = layers.ops, layers.heads
        self._cos, self._sin = (
            self._ops.rows(f(angles).astype(np.float32), self._ops.positions) for f in (np.cos, np.sin)
        )

    def turn(self, qkv: Node) -> Node:
        """[tokens, 3 * width] → the same."""
        return self._ops.rotated(qkv, self._heads, self._cos, self._sin)
