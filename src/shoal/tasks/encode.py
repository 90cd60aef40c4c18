"""encode: texts to vectors, dense, sparse or one a token; width, norm and dtype are the caller's choice.

An empty text has no vector and gets a typed fault, except where only a sparse one is asked for: that is empty.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from shoal.protocol.errors import EmptyInput, Fault, InvalidInput
from shoal.protocol.facts import Facts, Kind
from shoal.protocol.items import Item, Output, Truncate
from shoal.protocol.tensors import Array, Tensor
from shoal.tasks import Entry
from shoal.tasks.dtypes import Dtype, cast
from shoal.tasks.prompts import default_prompt, named_prompt, require_task, role_prompt, text_fault
from shoal.tasks.volume import MOST_SENT, check_volume

MAX_TOKEN_ID = 2**31 - 1
_NOTHING = Output(
    {"sparse.indices": Tensor.of(np.empty(0, "<i4")), "sparse.values": Tensor.of(np.empty(0, "<f4"))}
)


class Text(msgspec.Struct, frozen=True):
    """One thing to encode: `text`, or token `ids` without markers. `id` is echoed.

    `fault` says that it was already found to be unanswerable.
    """

    text: str | None = None
    ids: list[int] | None = None
    id: str | None = None
    fault: Fault | None = None


class EncodeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`kinds` are those wanted of each input, none for the model's first.

    `prompt` names one of the model's prompts; `instruction` is a prefix given by the caller instead.
    `is_query` chooses the prompt "query" or, if false, "document" or "passage" where the model has one;
    `purpose` is a prompt's name that is used where the model has it, and otherwise does no harm.
    `normalize` None keeps the model's own habit. `dims` 0 keeps the whole width, `max_tokens` 0 all tokens
    that the model can read. `adapter` names the LoRA adapter to compute with, where the model is its base.
    """

    inputs: list[Text]
    kinds: tuple[Kind, ...] = ()
    prompt: str = ""
    instruction: str = ""
    is_query: bool | None = None
    purpose: str = ""
    dims: int = 0
    dtype: Dtype = "float32"
    normalize: bool | None = None
    truncate: Truncate = "end"
    max_tokens: int = 0
    adapter: str = ""


class Sparse(msgspec.Struct, frozen=True):
    """`indices` [n] int32, ascending, of the vocabulary's entries; `values` [n] their weights, above 0."""

    indices: Array
    values: Array


class Vector(msgspec.Struct, frozen=True, kw_only=True):
    """What one input became, in the kinds asked for; nothing with a fault.

    `dense` [dims] · `multivector` [tokens, dims], each row cast by itself; in both, a dimension of packed
    bits is dims / 8 for the binary dtypes.
    """

    id: str | None = None
    dense: Array | None = None
    sparse: Sparse | None = None
    multivector: Array | None = None
    fault: Fault | None = None


class EncodeResponse(msgspec.Struct, frozen=True, kw_only=True):
    """`dims` and `token_dims` count components, also where eight of them are packed in a byte.

    Sparse values are float16 where that was asked for and float32 otherwise, whatever `dtype` is.
    """

    vectors: list[Vector]
    dims: int
    dtype: Dtype
    tokens: int
    truncated: int
    """How many inputs lost text to the length limit."""
    token_dims: int = 0


class Encode:
    name = "encode"

    def split(self, request: EncodeRequest, facts: Facts) -> list[Entry]:
        """An entry for each input. Raises InvalidInput for what this model cannot give at all, PayloadTooLarge for
        more than one answer should hold.
        """
        require_task(self.name, facts)
        kinds = _kinds(request, facts)
        dims = _width(request.dims, kinds, facts)
        chosen = _chosen_prompt(request, facts)
        prompt = default_prompt(facts) if chosen is None else chosen

        entries: list[Entry] = []
        for given in request.inputs:
            fault = given.fault or _fault(given)
            if fault is not None:
                entries.append(_NOTHING if fault.code == EmptyInput.code and kinds == ("sparse",) else fault)
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
                    max_tokens=request.max_tokens,
                    dims=dims,
                    normalize=request.normalize,
                    kinds=kinds,
                    is_query=request.is_query,
                )
            )
        check_volume(entries, facts, MOST_SENT)
        return entries

    def join(self, request: EncodeRequest, facts: Facts, outputs: Sequence[Output]) -> EncodeResponse:
        """One vector an input, in order, each kind cast to the dtype asked for."""
        assert len(outputs) == len(request.inputs), "as many outputs as inputs"
        kinds = _kinds(request, facts)
        done = [output for output in outputs if output.fault is None]
        columns: dict[str, Iterator[Any]] = {kind: iter(_COLUMNS[kind](done, request.dtype)) for kind in kinds}
        return EncodeResponse(
            vectors=[
                Vector(id=given.id, fault=output.fault)
                if output.fault is not None
                else Vector(id=given.id, **{kind: next(column) for kind, column in columns.items()})
                for given, output in zip(request.inputs, outputs, strict=True)
            ],
            dims=_seen_width("dense", done) or request.dims or facts.dims,
            token_dims=_seen_width("multivector", done) or (facts.multivector.dims if facts.multivector else 0),
            dtype=request.dtype,
            tokens=sum(output.tokens for output in outputs),
            truncated=sum(output.truncated for output in outputs),
        )


def _kinds(request: EncodeRequest, facts: Facts) -> tuple[Kind, ...]:
    """What is wanted, each once. Raises InvalidInput, naming what there is, for a kind the model has not."""
    kinds = tuple(dict.fromkeys(request.kinds)) or facts.kinds[:1]
    lacking = [kind for kind in kinds if kind not in facts.kinds]
    if lacking:
        raise InvalidInput(
            f"this model gives {_named(facts.kinds, ' and ')}, not {_named(lacking, ' or ')}",
            gives=list(facts.kinds),
            param="output_types",
        )
    if kinds == ("sparse",) and request.dtype not in ("float32", "float16"):
        raise InvalidInput(f"sparse vectors come as float32 or float16, not {request.dtype}", param="output_dtype")
    return kinds


def _named(kinds: Sequence[Kind], word: str) -> str:
    return word.join("multivectors" if kind == "multivector" else f"{kind} vectors" for kind in kinds)


def _width(dims: int, kinds: tuple[Kind, ...], facts: Facts) -> int:
    """`dims` as an item carries it: 0 for the whole width. Raises InvalidInput for an untrained width."""
    if dims and "dense" not in kinds:
        raise InvalidInput("dimensions is for dense vectors, and none is asked for", param="dimensions")
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

    1. The caller's own words. 2. A prompt by name. 3. The one for queries, or for what is searched.
    4. The one for a purpose, if the model has it.
    """
    if request.instruction:
        return request.instruction
    if request.prompt:
        return named_prompt(request.prompt, facts)
    if request.is_query is not None:
        return role_prompt(request.is_query, facts)
    return facts.prompts.get(request.purpose)


def _fault(given: Text) -> Fault | None:
    if given.ids is None:
        return text_fault(given.text or "")
    if not given.ids:
        return EmptyInput("the list of token ids is empty").fault()
    if min(given.ids) < 0 or max(given.ids) > MAX_TOKEN_ID:
        return InvalidInput(f"a token id is below 0 or over {MAX_TOKEN_ID}").fault()
    return None


def _dense(outputs: Sequence[Output], dtype: Dtype) -> Sequence[Array]:
    rows = [output.tensors["dense"].numpy() for output in outputs]
    return rows if dtype == "float32" or not rows else list(cast(np.stack(rows), dtype))


def _multivector(outputs: Sequence[Output], dtype: Dtype) -> Sequence[Array]:
    return [cast(output.tensors["multivector"].numpy(), dtype) for output in outputs]


def _sparse(outputs: Sequence[Output], dtype: Dtype) -> Sequence[Sparse]:
    dtype = "float16" if dtype == "float16" else "float32"
    return [
        Sparse(
            output.tensors["sparse.indices"].numpy().astype("<i4", copy=False),
            cast(output.tensors["sparse.values"].numpy(), dtype),
        )
        for output in outputs
    ]


_COLUMNS: dict[Kind, Callable[[Sequence[Output], Dtype], Sequence[Array | Sparse]]] = {
    "dense": _dense,
    "sparse": _sparse,
    "multivector": _multivector,
}


def _seen_width(name: str, done: Sequence[Output]) -> int:
    return done[0].tensors[name].shape[-1] if done and name in done[0].tensors else 0


TASK = Encode()
