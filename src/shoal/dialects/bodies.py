"""Bytes to checked structs, and the headers of an answer: what every dialect needs. Knows no route."""

import re
from collections.abc import Collection
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from shoal.dialects import Timing
from shoal.dialects.allowed import allowed
from shoal.protocol.envelope import Envelope
from shoal.protocol.errors import InvalidInput, PayloadTooLarge, UnsupportedMediaType
from shoal.protocol.limits import MAX_ENTRIES, MAX_OPENINGS

T = TypeVar("T")
Format = Literal["json", "msgpack"]
Width = Annotated[int, msgspec.Meta(gt=0, le=2**31 - 1)]
AtMost = msgspec.Meta(max_length=MAX_ENTRIES)
"""For every list of entries: of msgpack it is checked before one of them is decoded."""
Decoder = msgspec.json.Decoder[T] | msgspec.msgpack.Decoder[T]

JSON = "application/json"
MSGPACK = "application/msgpack"
SERVER_VERSION = "0.10.1"
"""The release whose native wire ours is compatible with; its SDK warns about any but 0.10.x."""
ABSENT = msgspec.Raw()
"""What a field that is only looked at, not read, holds when it is not there."""

_FORMATS: dict[str, Format] = {JSON: "json", MSGPACK: "msgpack", "application/x-msgpack": "msgpack"}
_LONGEST_COMPLAINT = 300
_PLACE = re.compile(r" - at `\$\.?([^`]+)`$")
"""How msgspec ends a complaint about a field."""
_NO_SUCH_VALUE = "Invalid enum value "


class Peek(msgspec.Struct, frozen=True):
    model: str | None = None


_peek = msgspec.json.Decoder(Peek)
_peek_keys = msgspec.json.Decoder(dict[str, msgspec.Raw])


def peek_model(body: bytes) -> str:
    """The top-level `model` of a JSON object, "" where it has none. Skips over all the rest."""
    return decode(_peek, body).model or ""


def peek_keys(body: bytes) -> Collection[str]:
    """The top-level keys of a JSON object; none of anything else. Skips over all the rest."""
    try:
        return decode(_peek_keys, body)
    except InvalidInput:
        return ()


def decode(decoder: Decoder[T], body: bytes) -> T:
    """Raises InvalidInput that says what is wrong and where, in words and as `param`."""
    if not body:
        raise InvalidInput("the body is empty")
    if len(body) > MAX_OPENINGS and (openings := body.count(b"{") + body.count(b"[")) > MAX_OPENINGS:
        raise PayloadTooLarge(
            f"the body opens {openings} objects and lists, over the limit of {MAX_OPENINGS}; send it in parts"
        )
    try:
        return decoder.decode(body)
    except RecursionError as e:
        raise InvalidInput("the body is nested too deeply") from e
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise _complaint(str(e), decoder) from e


def _complaint(words: str, decoder: Decoder[Any]) -> InvalidInput:
    """msgspec's words, which may quote the value at fault, megabytes long, and never say what would do."""
    found = _PLACE.search(words)
    place = found[1][:_LONGEST_COMPLAINT] if found else ""
    if len(words) > _LONGEST_COMPLAINT:
        words = words[:_LONGEST_COMPLAINT] + "…"
    detail: dict[str, Any] = {"param": place} if place else {}
    if words.startswith(_NO_SUCH_VALUE) and (values := allowed(decoder.type, place)):
        value = words.removeprefix(_NO_SUCH_VALUE).partition(" - at ")[0]
        words = f"{place} is {value}; it takes {', '.join(values)}"
        detail["allowed"] = list(values)
    return InvalidInput(words, **detail)


def json_only(content_type: str) -> None:
    """Raises UnsupportedMediaType unless the body is declared as JSON or not declared at all."""
    if content_type and _declared(content_type) != "json":
        raise UnsupportedMediaType(f"content-type is {content_type[:100]!r}; this route reads {JSON}")


def body_format(content_type: str, body: bytes) -> Format:
    """What the header declares; without a header, JSON where the body opens a JSON object, else msgpack."""
    if not content_type:
        return "json" if body.lstrip()[:1] == b"{" else "msgpack"
    declared = _declared(content_type)
    if declared is None:
        raise UnsupportedMediaType(f"content-type is {content_type[:100]!r}; this route reads {MSGPACK} or {JSON}")
    return declared


def _declared(content_type: str) -> Format | None:
    return _FORMATS.get(content_type) or _FORMATS.get(content_type.partition(";")[0].strip().lower())


def answer_headers(envelope: Envelope, timing: Timing, truncated: int, content_type: str) -> list[tuple[str, str]]:
    """Headers of a successful answer, times in ms. `truncated` counts inputs that lost text."""
    headers = [
        ("content-type", content_type),
        ("x-request-id", envelope.id),
        ("x-sie-request-id", envelope.id),
        ("x-sie-server-version", SERVER_VERSION),
        ("x-queue-time", f"{timing.queue_ms:.3f}"),
        ("x-tokenization-time", f"{timing.tokenize_ms:.3f}"),
        ("x-inference-time", f"{timing.compute_ms:.3f}"),
        ("x-total-time", f"{timing.total_ms:.3f}"),
    ]
    if truncated:
        headers.append(("x-shoal-truncated", str(truncated)))
    return headers
