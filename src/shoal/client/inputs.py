"""What a caller hands over, made into wire items: a bare string is one text, never its letters.

Items are encoded at once, so that their sizes are known and requests can be cut by count and bytes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from shoal.dialects.arrays import WireArray, wire_array
from shoal.protocol.errors import InvalidInput
from shoal.protocol.tensors import Array

Item = str | Mapping[str, Any] | Array
"""A text, a mapping in the wire's own terms: {"text": …, "id": …}, or, to be scored, vectors [tokens, dims]."""
Texts = Item | Iterable[Item]

MAX_ITEMS = 256
MAX_BYTES = 4 * 1024 * 1024


def _array(value: Any) -> WireArray:
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return wire_array(np.ascontiguousarray(value, value.dtype.newbyteorder("<")))
    raise TypeError(f"a {type(value).__name__} is nothing that the wire knows")


_encoder = msgspec.msgpack.Encoder(enc_hook=_array)


def listed(texts: Texts) -> tuple[bool, list[Item]]:
    """Whether `texts` is a single one, and all as a list. Raises InvalidInput if it is no such thing."""
    if isinstance(texts, np.ndarray) and texts.dtype.kind != "f":
        texts = texts.tolist()
    if isinstance(texts, str | Mapping) or (isinstance(texts, np.ndarray) and texts.ndim == 2):
        return True, [texts]
    if isinstance(texts, bytes | bytearray) or not isinstance(texts, Iterable):
        raise InvalidInput(f"texts are a {type(texts).__name__}; give a string or an iterable of strings")
    return False, list(texts)


def encoded(item: Item, what: str, **more: Any) -> msgspec.Raw:
    """`item` as wire bytes, `more` fields added. `what` names it where it is refused with InvalidInput."""
    if isinstance(item, str):
        # str(): numpy's own string type is a subclass that the encoder does not know.
        fields: dict[str, Any] = {"text": str(item)}
    elif isinstance(item, np.ndarray):
        fields = {"multivector": item}
    elif isinstance(item, Mapping):
        fields = dict(item)
    else:
        raise InvalidInput(f"{what} is a {type(item).__name__}; give a string or a mapping with a text")
    try:
        return msgspec.Raw(_encoder.encode(fields | more))
    except UnicodeEncodeError as e:
        raise InvalidInput(f"{what} is not valid Unicode text: {e.reason} at character {e.start}") from e
    except TypeError as e:
        raise InvalidInput(f"{what} cannot be sent: {e}") from e


def chunked(
    items: Sequence[msgspec.Raw], max_items: int = MAX_ITEMS, max_bytes: int = MAX_BYTES
) -> Iterator[slice]:
    """Cuts `items` in order; each slice holds at most so many items and, above one item, so many bytes."""
    start = size = 0
    for index, item in enumerate(items):
        bytes_here = len(memoryview(item))
        if index > start and (index - start == max_items or size + bytes_here > max_bytes):
            yield slice(start, index)
            start, size = index, 0
        size += bytes_here
    if start < len(items):
        yield slice(start, len(items))
