"""What the native routes accept: the request bodies, and the tasks' requests made from them.

Fields we do not know are skipped, whatever they hold; `ignored` finds the settings among them. Media are seen and
refused item by item, unread.
"""

from typing import Annotated

import msgspec

from shoal.dialects.arrays import read_matrix
from shoal.dialects.bodies import ABSENT, AtMost, Width
from shoal.protocol.errors import Fault, InvalidInput
from shoal.protocol.facts import Kind
from shoal.protocol.items import Truncate
from shoal.protocol.tensors import Array
from shoal.tasks.dtypes import Dtype
from shoal.tasks.encode import EncodeRequest, Text
from shoal.tasks.score import Document, ScoreRequest

MAX_SCORE_ITEMS = 1000
"""The native API's own limit on documents for one query."""

_NOTHING = (b"null", b"[]", b"\xc0", b"\x90")
"""Nothing, as JSON and msgpack write it."""


class Item(msgspec.Struct, frozen=True):
    """`multivector` are vectors made before, to be scored instead of the text."""

    id: str | None = None
    text: str | None = None
    images: msgspec.Raw = ABSENT
    audio: msgspec.Raw = ABSENT
    video: msgspec.Raw = ABSENT
    document: msgspec.Raw = ABSENT
    multivector: msgspec.Raw = ABSENT


class Options(msgspec.Struct, frozen=True):
    """`prompt_name` and `truncate` are ours; the others the SDK's."""

    profile: str | None = None
    lora_id: str | None = None
    lora: str | None = None
    instruction: str | None = None
    prompt_name: str | None = None
    truncate: Truncate | None = None


class EncodeOptions(Options, frozen=True):
    """`dimensions` is ours."""

    is_query: bool | None = None
    output_dtype: Dtype | None = None
    normalize: bool | None = None
    dimensions: Width | None = None


class ScoreOptions(Options, frozen=True):
    """Both are ours."""

    raw: bool | None = None
    label: str | None = None


class Params(msgspec.Struct, frozen=True):
    output_types: list[Kind] | None = None
    output_dtype: Dtype | None = None
    instruction: str | None = None
    options: EncodeOptions | None = None


class EncodeBody(msgspec.Struct, frozen=True):
    items: Annotated[list[str | Item], AtMost]
    params: Params | None = None


class ScoreBody(msgspec.Struct, frozen=True):
    query: str | Item
    items: Annotated[list[str | Item], AtMost]
    instruction: str | None = None
    options: ScoreOptions | None = None


class _StrictEncodeOptions(EncodeOptions, frozen=True, forbid_unknown_fields=True): ...


class _StrictParams(Params, frozen=True, forbid_unknown_fields=True):
    options: _StrictEncodeOptions | None = None


class _StrictScoreOptions(ScoreOptions, frozen=True, forbid_unknown_fields=True): ...


class StrictEncodeBody(EncodeBody, frozen=True, forbid_unknown_fields=True):
    """Every setting of it is one that we read."""

    params: _StrictParams | None = None


class StrictScoreBody(ScoreBody, frozen=True, forbid_unknown_fields=True):
    options: _StrictScoreOptions | None = None


_NO_PARAMS = Params()
_NO_ENCODE_OPTIONS = EncodeOptions()
_NO_SCORE_OPTIONS = ScoreOptions()


def encode_request(body: EncodeBody, *, variant: str = "") -> EncodeRequest:
    """`variant` is the one that the model was named with. Raises InvalidInput for what no item of the request can
    be given."""
    _require_items(body.items)
    params = body.params or _NO_PARAMS
    options = params.options or _NO_ENCODE_OPTIONS
    _require_variant(options, variant)
    return EncodeRequest(
        inputs=[
            Text(item) if isinstance(item, str) else Text(item.text, id=item.id, fault=_media_fault(item))
            for item in body.items
        ],
        kinds=tuple(params.output_types or ()),
        prompt=options.prompt_name or "",
        instruction=params.instruction or options.instruction or "",
        is_query=options.is_query,
        dims=options.dimensions or 0,
        dtype=params.output_dtype or options.output_dtype or "float32",
        normalize=options.normalize,
        truncate=options.truncate or "end",
        adapter=options.lora_id or options.lora or "",
    )


def score_request(body: ScoreBody, *, packed: bool, variant: str = "") -> ScoreRequest:
    """`packed` says that the body is msgpack. Raises InvalidInput as `encode_request` does."""
    _require_items(body.items)
    if len(body.items) > MAX_SCORE_ITEMS:
        raise InvalidInput(
            f"items has {len(body.items)} entries, over the limit of {MAX_SCORE_ITEMS} that this API sets; "
            "send several requests, or use /v1/rerank, where --max-items sets the limit",
            limit=MAX_SCORE_ITEMS,
            seen=len(body.items),
            setting="--max-items",
        )
    options = body.options or _NO_SCORE_OPTIONS
    _require_variant(options, variant)
    query = _document(body.query, packed)
    if query.fault is not None:
        raise InvalidInput(f"query: {query.fault.message}", param="query")
    return ScoreRequest(
        query=query.text,
        query_id=query.id,
        query_vectors=query.vectors,
        documents=[_document(item, packed) for item in body.items],
        instruction=body.instruction or options.instruction or "",
        prompt=options.prompt_name or "",
        truncate=options.truncate or "end",
        raw=options.raw or False,
        label=options.label or "",
        adapter=options.lora_id or options.lora or "",
    )


def _document(item: str | Item, packed: bool) -> Document:
    if isinstance(item, str):
        return Document(item)
    fault = _media_fault(item)
    vectors: Array | None = None
    if item.multivector is not ABSENT and bytes(item.multivector) not in _NOTHING:
        try:
            vectors = read_matrix(bytes(item.multivector), packed=packed)
        except InvalidInput as error:
            fault = fault or InvalidInput(f"multivector {error.message}").fault()
    return Document(item.text or "", item.id, fault, vectors)


def _require_items(items: list[str | Item]) -> None:
    if not items:
        raise InvalidInput("items is empty; give at least one", param="items")


def _require_variant(options: Options, variant: str) -> None:
    """A variant is a model of its own, with a line of its own: by the time that a body is read it is settled."""
    if options.profile not in (None, "", "default", variant):
        named = options.profile[:200]
        raise InvalidInput(
            f"no profile named {named!r}; a variant is asked for by the model's name, as in org/name:{named}",
            param="profile",
        )


def _media_fault(item: Item) -> Fault | None:
    """Why an item with pictures, sound or a file fails: leaving them out would answer another question."""
    for name in ("images", "audio", "video", "document"):
        medium = getattr(item, name)
        if medium is not ABSENT and bytes(medium) not in _NOTHING:
            return InvalidInput(f"only text can be read; the item has {name}").fault()
    return None
