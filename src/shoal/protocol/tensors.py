"""Arrays as bytes: how a row of output travels between processes. Copies are the caller's choice."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Tensor(msgspec.Struct, frozen=True, array_like=True):
    """Little-endian, C-ordered. `dtype` is numpy's short form (`<f4`, `|i1`); shape in elements."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, array: Array) -> "Tensor":
        array = np.ascontiguousarray(array)
        return cls(array.dtype.str, array.shape, array.tobytes())

    def numpy(self) -> Array:
        """A read-only view on the bytes, no copy."""
        return np.frombuffer(self.data, dtype=self.dtype).reshape(self.shape)
