"""The number types that vectors may be asked for in, and the casts to them."""

from typing import Literal

import numpy as np

from shoal.protocol.tensors import Array

Dtype = Literal["float32", "float16", "int8", "uint8", "binary", "ubinary"]
FLOAT16_MAX = 65504.0


def cast(rows: Array, dtype: Dtype) -> Array:
    """`rows` [n, dims] fp32 in another dtype; [n, ceil(dims / 8)] bytes for the binary ones.

    int8 is symmetric, each row's largest magnitude at ±127; uint8 is linear from each row's least (0) to
    its greatest (255), 128 where they are equal; binary packs the bits of value > 0, first component in
    the highest bit. `ubinary` is the same: on wires with packed int8 the dialect shifts it. float16 stops
    at its largest finite value.
    """
    match dtype:
        case "float32":
            return rows.astype("<f4", copy=False)
        case "float16":
            return np.clip(rows, -FLOAT16_MAX, FLOAT16_MAX).astype("<f2")
        case "int8":
            wide = rows.astype(np.float64)
            peak = np.abs(wide).max(axis=1, keepdims=True)
            return np.rint(wide * (127.0 / np.where(peak > 0, peak, 1.0))).astype(np.int8)
        case "uint8":
            wide = rows.astype(np.float64)
            low = wide.min(axis=1, keepdims=True)
            span = wide.max(axis=1, keepdims=True) - low
            scaled = (wide - low) * (255.0 / np.where(span > 0, span, 1.0))
            return np.where(span > 0, np.rint(scaled), 128).astype(np.uint8)
        case "binary" | "ubinary":
            return np.packbits(rows > 0, axis=1)
