"""Arrays as the native wire writes them: in msgpack maps with bytes keys (msgpack-numpy's), in JSON lists."""

from typing import Any

from shoal.protocol.tensors import Array

WireArray = dict[bytes, bool | bytes | str | tuple[int, ...] | memoryview]


def wire_array(array: Array) -> WireArray:
    """`array` (numeric, little-endian, C-ordered) without a copy; at most 8 dimensions, no objects."""
    return {
        b"nd": True,
        b"type": array.dtype.str,
        b"kind": b"",
        b"shape": array.shape,
        b"data": array.data.cast("B") if array.size else b"",
    }


def plain_list(array: Array) -> list[Any]:
    return array.tolist()  # type: ignore[no-any-return]  # numpy says Any; of a row it is a list
