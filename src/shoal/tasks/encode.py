"""encode: texts to vectors. Dense for now; width, norm and dtype are the caller's choice."""

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from shoal.protocol.errors import EmptyInput, Fault, InvalidInput
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item, Output, Truncate
from shoal.protocol.tensors import Array
from shoal.tasks.prompts import default_prompt, named_prompt, require_task, text_fault

Dtype = Literal["float32", "float16", "int8", "uint8", "binary", "ubinary"]
Kind = Literal["dense", "sparse", "multivector"]
MAX_TOKEN_ID = 2**31 - 1
FLOAT16_MAX = 65504.0


class Text(msgspec.Struct, frozen=True):
    """One thing to encode: `text`, or token `ids` without markers. `id` is echoed.

    `fault` says that it was already found to be unanswerable.
    """

    text: str | None = None
    ids: list[int] | None = None
    id: str | None = None
    fault: Fault | None = None


class EncodeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`prompt` names one of the model's prompts; `instruction` is a prefix given by the caller instead.

    `is_query` chooses the prompt "query" or, if false, "document" or "passage" where the model has one.
    `normalize` None keeps the model's own habit. `dims` 0 keeps the whole width.
    """

    inputs: list[Text]
    kinds: tuple[Kind, ...] = ("dense",)
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
    """`dims` counts the vector's components, also where eight of them are packed in a byte."""

    vectors: list[Vector]
    dims: int
    dtype: Dtype
    tokens: int
    truncated: int
    """How many inputs lost text to the length limit."""


class Encode:
    name = "encode"

    def split(self, request: EncodeRequest, facts: Facts) -> list[Item | Fault]:
        """An item or a fault for each input. Raises InvalidInput for what this model cannot give at all."""
        require_task(self.name, facts)
        lacking = [kind for kind in request.kinds if kind != "dense"]
        if lacking:
            raise InvalidInput(f"this model gives dense vectors, not {', '.join(lacking)}", gives=["dense"])
        dims = _width(request.dims, facts)
        chosen = _chosen_prompt(request, facts)
        prompt = default_prompt(facts) if chosen is None else chosen

        entries: list[Item | Fault] = []
        for given in request.inputs:
            fault = given.fault or _fault(given)
            if fault is not None:
                entries.append(fault)
                continue
            if given.ids is not None and chosen:
                raise InvalidInput("a prompt cannot be put before token ids; send text, or ids that include it")
            entries.append(
                Item(
                    text=given.text or "",
                    ids=given.ids,
                    # Whoever sends ids has tokenised the whole input: the model's default prompt stays out.
                    prompt="" if given.ids is not None else prompt,
                    truncate=request.truncate,
                    dims=dims,
                    normalize=request.normalize,
                )
            )
        return entries

    def join(self, request: EncodeRequest, facts: Facts, outputs: Sequence[Output]) -> EncodeResponse:
        """One vector an input, in order, cast to the dtype asked for."""
        assert len(outputs) == len(request.inputs), "as many outputs as inputs"
        done = [output.tensors["dense"].numpy() for output in outputs if output.fault is None]
        rows = iter(cast(np.stack(done), request.dtype) if done else ())
        return EncodeResponse(
            vectors=[
                Vector(given.id, next(rows) if output.fault is None else None, output.fault)
                for given, output in zip(request.inputs, outputs, strict=True)
            ],
            dims=done[0].shape[-1] if done else request.dims or facts.dims,
            dtype=request.dtype,
            tokens=sum(output.tokens for output in outputs),
            truncated=sum(output.truncated for output in outputs),
        )


def _width(dims: int, facts: Facts) -> int:
    """`dims` as an item carries it: 0 for the whole width. Raises InvalidInput for an untrained width."""
    if dims in (0, facts.dims):
        return 0
    if dims not in facts.matryoshka:
        allowed = sorted({*facts.matryoshka, facts.dims})
        raise InvalidInput(
            f"dimensions is {dims}; this model was trained for {', '.join(map(str, allowed))}",
            allowed=allowed,
            param="dimensions",
        )
    return dims


def _chosen_prompt(request: EncodeRequest, facts: Facts) -> str | None:
    """The prefix that the request asks for; None where it leaves that to the model.

    1. The caller's own words. 2. A prompt by name. 3. The one for queries, or for what is searched, under
    the names and in the order in which sentence-transformers looks for it.
    """
    if request.instruction:
        return request.instruction
    if request.prompt:
        return named_prompt(request.prompt, facts)
    if request.is_query is not None:
        names = ("query",) if request.is_query else ("document", "passage", "corpus")
        return next((facts.prompts[name] for name in names if name in facts.prompts), None)
    return None


def _fault(given: Text) -> Fault | None:
    if given.ids is None:
        return text_fault(given.text or "")
    if not given.ids:
        return EmptyInput("the list of token ids is empty").fault()
    if min(given.ids) < 0 or max(given.ids) > MAX_TOKEN_ID:
        return InvalidInput(f"a token id is below 0 or over {MAX_TOKEN_ID}").fault()
    return None


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


TASK = Encode()
