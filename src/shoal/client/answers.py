"""What the server sends when all is well, read: vectors, scores, models.

Knows the native wire's shapes. Does not know attempts, sockets or which texts were asked about.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from shoal.client.errors import BadAnswer
from shoal.client.refusals import exception, snippet
from shoal.protocol.errors import ShoalError
from shoal.protocol.facts import Kind
from shoal.protocol.tensors import Array

S = TypeVar("S")

DTYPES = frozenset({"<f2", "<f4", "<f8", "|b1", "|i1", "|u1"} | {f"<{k}{n}" for k in "iu" for n in (2, 4, 8)})
MAX_DIMENSIONS = 8


class ItemError(msgspec.Struct, frozen=True):
    code: str = "INTERNAL_ERROR"
    message: str = ""
    detail: dict[str, Any] = {}

    def exception(self) -> ShoalError:
        return exception(self.code, self.message, self.detail)


class Dense(msgspec.Struct, frozen=True):
    values: dict[Any, Any]


class Weights(msgspec.Struct, frozen=True):
    indices: dict[Any, Any]
    values: dict[Any, Any]


class Sparse(NamedTuple):
    """A sparse vector: `indices` [n] int32 of vocabulary entries, ascending, and their `values` [n] above 0."""

    indices: Array
    values: Array


class EncodedItem(msgspec.Struct, frozen=True):
    """`dense` and `multivector` are written alike."""

    dense: Dense | None = None
    sparse: Weights | None = None
    multivector: Dense | None = None
    error: ItemError | None = None


class Encoded(msgspec.Struct, frozen=True):
    items: list[EncodedItem]


class ScoredItem(msgspec.Struct, frozen=True):
    item_id: str
    score: float | None = None
    error: ItemError | None = None


class Scored(msgspec.Struct, frozen=True):
    scores: list[ScoredItem]


Encoding = Array | Sparse
"""A dense vector [dims], a sparse one, or a multivector [tokens, dims]."""

_encoded = msgspec.msgpack.Decoder(Encoded)
_scored = msgspec.msgpack.Decoder(Scored)
_object = msgspec.json.Decoder(dict[str, Any])


def vectors(body: bytes, inputs: range, kind: Kind | None = "dense") -> list[Encoding | ShoalError]:
    """One vector of `kind` (None: of the kind that is there), or error, per input, in order.

    Raises BadAnswer for anything else.
    """
    items = decoded(_encoded, body).items
    if len(items) != len(inputs):
        raise BadAnswer(f"the server answered {len(items)} vectors for {len(inputs)} inputs")
    return [_vector(item, kind) for item in items]


def scores(body: bytes, documents: range) -> list[float | ShoalError]:
    """One score or error per document, in the order of the request, whose ids were their indices."""
    found: dict[str, float | ShoalError] = {}
    for item in decoded(_scored, body).scores:
        if item.error is not None:
            found[item.item_id] = item.error.exception()
        elif item.score is not None:
            found[item.item_id] = item.score
    expected = [str(index) for index in documents]
    if found.keys() != set(expected):
        raise BadAnswer(f"the server's {len(found)} scores are not those of the {len(documents)} documents")
    return [found[item_id] for item_id in expected]


def models(body: bytes) -> list[dict[str, Any]]:
    """The models of a listing, as the server describes them."""
    answer = description(body)
    listed = answer.get("models", answer.get("data"))
    if not isinstance(listed, list):
        raise BadAnswer(f"the server lists no models: {snippet(body)}")
    return listed


def description(body: bytes) -> dict[str, Any]:
    return decoded(_object, body)


def array(packed: Mapping[Any, Any]) -> Array:
    """A read-only array from its wire form. Raises BadAnswer where it is none."""
    try:
        dtype, shape, data = packed[b"type"], packed[b"shape"], packed[b"data"]
        if dtype not in DTYPES or len(shape) > MAX_DIMENSIONS:
            raise BadAnswer(f"the server sent an array of type {dtype!r} and shape {shape!r}")
        return np.frombuffer(data, dtype=dtype).reshape(shape)
    except (KeyError, TypeError, ValueError) as e:
        raise BadAnswer(f"the server sent an array that cannot be read: {e!r}") from e


def _vector(item: EncodedItem, kind: Kind | None) -> Encoding | ShoalError:
    if item.error is not None:
        return item.error.exception()
    if kind is None:
        kind = "sparse" if item.sparse else "multivector" if item.multivector else "dense"
    if kind == "sparse":
        if item.sparse is not None:
            return _sparse(item.sparse)
    elif (found := item.dense if kind == "dense" else item.multivector) is not None:
        vector = array(found.values)
        if vector.ndim != (1 if kind == "dense" else 2):
            raise BadAnswer(f"the server sent a {kind} vector of shape {vector.shape}")
        return vector
    raise BadAnswer(f"the server answered an input with neither a {kind} vector nor an error")


def _sparse(weights: Weights) -> Sparse:
    sparse = Sparse(array(weights.indices), array(weights.values))
    if sparse.indices.ndim != 1 or sparse.indices.shape != sparse.values.shape:
        raise BadAnswer(f"the server sent {sparse.indices.shape} indices for {sparse.values.shape} weights")
    return sparse


def decoded(decoder: "msgspec.msgpack.Decoder[S] | msgspec.json.Decoder[S]", body: bytes) -> S:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise BadAnswer(f"what answered does not speak the native wire ({e}): {snippet(body)}") from e
