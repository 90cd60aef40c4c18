"""encode: texts to vectors. Dense for now; the shorter width, the norm and the dtype are the caller's choice."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from shoal.protocol.errors import EmptyInput, Fault, InvalidInput
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item, Output, Truncate
from shoal.protocol.tensors import Array

Dtype = Literal["float32", "float16", "int8", "uint8", "binary", "ubinary"]


class Text(msgspec.Struct, frozen=True):
    """One thing to encode: `text`, or token `ids` without markers. `id` is echoed."""

    text: str | None = None
    ids: list[int] | None = None
    id: str | None = None


class EncodeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`prompt` names one of the model's prompts; `instruction` is a prefix given by the caller instead.

    `is_query` chooses the prompt "query" or, if false, "passage"/"document" where the model has them.
    `normalize` None keeps the model's own habit. `dims` 0 keeps the whole width.
    """

    inputs: list[Text]
    prompt: str = ""
    instruction: str = ""
    is_query: bool | None = None
    dims: int = 0
    dtype: Dtype = "float32"
    normalize: bool | None = None
    truncate: Truncate = "end"


class Vector(msgspec.Struct, frozen=True):
    """`values` is [dims], or [dims / 8] packed bits for the binary dtypes; None with a fault."""

    id: str | None = None
    values: Array | None = None
    fault: Fault | None = None


class EncodeResponse(msgspec.Struct, frozen=True, kw_only=True):
    vectors: list[Vector]
    dims: int
    dtype: Dtype
    tokens: int
    truncated: int
    """How many inputs lost text to the length limit."""
