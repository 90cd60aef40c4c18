"""Arrays as the native wire writes them: in msgpack maps with bytes keys (msgpack-numpy's), in JSON lists."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from shoal.protocol.errors import InvalidInput
from shoal.protocol.tensors import Array

WireArray = dict[bytes, bool | bytes | str | tuple[int, ...] | memoryview]
READ_TYPES = ("<f2", "<f4", "<f8")
"""What an array of a request may hold."""

_Rows = list[list[float]]
_json_rows = msgspec.json.Decoder(_Rows)
_packed_rows = msgspec.msgpack.Decoder(_Rows)
_packed_map = msgspec.msgpack.Decoder(dict[bytes, Any])


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


def read_matrix(raw: bytes, *, packed: bool) -> Array:
    """An array of floats as a client wrote it: in msgpack a map or nested lists, in JSON nested lists.

    Raises InvalidInput for anything else, a row of another width among it. The shape is otherwise unchecked.
    """
    try:
        if packed and (raw[0] in (0xDE, 0xDF) or 0x80 <= raw[0] <= 0x8F):
            return _from_wire(_packed_map.decode(raw))
        rows = (_packed_rows if packed else _json_rows).decode(raw)
    except RecursionError as e:
        raise InvalidInput("is nested too deeply") from e
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise InvalidInput("is neither an array nor a list of lists of numbers") from e
    if len({len(row) for row in rows}) > 1:
        raise InvalidInput("has rows of different widths")
    return np.array(rows, "<f8").reshape(len(rows), len(rows[0]) if rows else 0)


def _from_wire(found: Mapping[Any, Any]) -> Array:
    dtype, shape, data = found.get(b"type"), found.get(b"shape"), found.get(b"data")
    if dtype not in READ_TYPES:
        raise InvalidInput(f"is no array of {', '.join(READ_TYPES)}")
    if not isinstance(shape, list) or len(shape) > 8 or not all(type(n) is int and n >= 0 for n in shape):
        raise InvalidInput("has no shape that can be read")
    if not isinstance(data, bytes) or len(data) != math.prod(shape) * np.dtype(dtype).itemsize:
        raise InvalidInput("has a shape that its data do not fill")
    return np.frombuffer(data, dtype).reshape(shape)
