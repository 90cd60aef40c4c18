"""encode: texts cut into requests, and the vectors of their answers joined: dense ones into one array."""

import functools
from typing import Any, Literal, TypedDict, TypeVar, get_args

import numpy as np

from shoal.client import answers
from shoal.client.answers import Encoding, Sparse
from shoal.client.calls import Call, ask_part
from shoal.client.errors import BadAnswer, ItemsFailed
from shoal.client.flow import Flow, Terms
from shoal.client.inputs import Texts, chunked, encoded, listed
from shoal.protocol.errors import InvalidInput, ShoalError
from shoal.protocol.facts import Kind
from shoal.protocol.items import Truncate
from shoal.protocol.tensors import Array
from shoal.tasks.dtypes import Dtype

T = TypeVar("T")

Rows = list[Encoding | ShoalError]


class EncodeOptions(TypedDict, total=False):
    is_query: bool | None
    """Apply the model's prompt for queries or, if false, for passages. None: its default prompt, if any."""
    prompt_name: str | None
    """Apply one of the model's prompts by its name."""
    instruction: str | None
    """Put this before each text, instead of a prompt."""
    dimensions: int | None
    """A shorter width that the model was trained for; None keeps all."""
    dtype: Dtype
    normalize: bool | None
    """None keeps the model's own habit."""
    truncate: Truncate
    """Of a text that is too long, cut off the "end" (the default) or the "start", or give it an "error"."""


def encode(
    terms: Terms,
    model: str,
    texts: Texts,
    *,
    errors: Literal["raise", "return"] = "raise",
    kinds: Kind | None = "dense",
    is_query: bool | None = None,
    prompt_name: str | None = None,
    instruction: str | None = None,
    dimensions: int | None = None,
    dtype: Dtype = "float32",
    normalize: bool | None = None,
    truncate: Truncate = "end",
) -> Call[Any]:
    """One row per text; see `Client.encode`. Raises InvalidInput for what cannot be sent."""
    if errors not in ("raise", "return"):
        raise InvalidInput(f'errors is {errors!r}; it is "raise" or "return"')
    if kinds is not None and kinds not in get_args(Kind):
        raise InvalidInput(f"kinds is {kinds!r}; it is one of {', '.join(get_args(Kind))}")
    read = functools.partial(answers.vectors, kind=kinds)
    is_single, inputs = listed(texts)
    items = [encoded(text, f"texts[{index}]") for index, text in enumerate(inputs)]
    options = {
        "is_query": is_query,
        "prompt_name": prompt_name,
        "dimensions": dimensions,
        "normalize": normalize,
        "truncate": None if truncate == "end" else truncate,
    }
    params = {
        "output_types": kinds and [kinds],
        "output_dtype": dtype,
        "instruction": instruction,
        "options": {key: value for key, value in options.items() if value is not None},
    }
    params = {key: value for key, value in params.items() if value}
    flows = [
        _hinting(ask_part(terms, "encode", model, {"items": items[part], "params": params}, part, read))
        for part in chunked(items)
    ]

    def join(parts: list[Rows]) -> Any:
        rows = [row for part in parts for row in part]
        if errors == "return":
            kept = [row if isinstance(row, ShoalError) else _own(row) for row in rows]
            return kept[0] if is_single else kept
        if is_single:
            return _single(rows[0])
        encodings = _good(rows)
        is_dense = kinds == "dense" or (kinds is None and all(_is_dense(each) for each in encodings))
        if not is_dense:
            return [_own(each) for each in encodings]
        return _stacked(encodings) if encodings else _nothing(dtype, dimensions)

    return Call(flows, join)


def _hinting(flow: Flow[T]) -> Flow[T]:
    """Says in our words how to ask for what the model gives, where it does not give what was asked for."""
    try:
        return (yield from flow)
    except InvalidInput as e:
        if gives := e.detail.get("gives"):
            e.add_note(f"Ask for it with kinds={gives[0]!r}.")
        raise


def _own(row: Encoding) -> Encoding:
    """Arrays of its own, that do not keep a whole answer's bytes alive."""
    return Sparse(row.indices.copy(), row.values.copy()) if isinstance(row, Sparse) else row.copy()


def _is_dense(row: Encoding) -> bool:
    return not isinstance(row, Sparse) and row.ndim == 1


def _single(row: Encoding | ShoalError) -> Encoding:
    if isinstance(row, ShoalError):
        raise row
    return _own(row)


def _good(rows: Rows) -> list[Encoding]:
    """Raises ItemsFailed, which has the others, where some are errors."""
    failed = {index: row for index, row in enumerate(rows) if isinstance(row, ShoalError)}
    if failed:
        kept = [None if isinstance(row, ShoalError) else _own(row) for row in rows]
        raise ItemsFailed(failed, kept, len(rows))
    return [row for row in rows if not isinstance(row, ShoalError)]


def _stacked(vectors: list[Any]) -> Array:
    if len({(vector.shape, vector.dtype) for vector in vectors}) > 1:
        raise BadAnswer("the server sent vectors of different widths or types for one call")
    return np.stack(vectors)


def _nothing(dtype: Dtype, dimensions: int | None) -> Array:
    """No rows, as wide as can be known without asking."""
    is_packed = dtype in ("binary", "ubinary")
    width = dimensions or 0
    return np.empty((0, -(-width // 8) if is_packed else width), np.uint8 if is_packed else dtype)
