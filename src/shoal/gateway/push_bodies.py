"""What the routes of push read and answer: bytes to checked structs and back. Knows shapes, no registry.

A push comes as JSON or msgpack that names files which were sent before, or as a form that brings them along.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import parse_qs

import msgspec

from shoal.catalog.ledger import NameState, Version
from shoal.catalog.manifests import File, Manifest
from shoal.catalog.proof import MOST_ROWS, Row
from shoal.dialects import Reply
from shoal.dialects.bodies import JSON, body_format, decode
from shoal.gateway.publishing import Published
from shoal.protocol.errors import InvalidInput, over_limit

FORM = "multipart/form-data"
_MOST_FIELD_BYTES = 4 * 1024 * 1024
_MOST_PARTS = 1100
MOST_FACTS_BYTES = 64 * 1024
"""As they are written. They may be of any shape, and decoded each byte can cost a hundred."""


class Push(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`facts` are what the files do not say, as on a card. An adapter's `base` may stand in its own files."""

    name: str
    files: tuple[File, ...] = ()
    base: str = ""
    reference: Annotated[tuple[Row, ...], msgspec.Meta(max_length=MOST_ROWS)] = ()
    note: str = ""
    facts: dict[str, Any] = {}


class Form(msgspec.Struct, frozen=True):
    """A push with its files: content by path."""

    push: Push
    contents: Mapping[str, bytes]


class Alias(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """0 is the version that is current."""

    version: int = 0
    note: str = ""


class Rollback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """0 is what it was before."""

    alias: str = ""
    version: int = 0
    note: str = ""


class _Facts(msgspec.Struct, frozen=True):
    """A push of which nothing else is read."""

    facts: msgspec.Raw = msgspec.Raw()


_decoders: dict[tuple[type, str], Any] = {
    (kind, form): module.Decoder(kind)
    for kind in (Push, _Facts, Alias, Rollback, Manifest)
    for form, module in (("json", msgspec.json), ("msgpack", msgspec.msgpack))
}


def read(kind: type[Any], body: bytes, content_type: str, *, may_be_empty: bool = False) -> Any:
    """Raises InvalidInput, UnsupportedMediaType."""
    if not body and may_be_empty:
        return kind()
    form = body_format(content_type, body)
    if kind is Push and len(body) > MOST_FACTS_BYTES:
        _check_facts_size(len(decode(_decoders[_Facts, form], body).facts))
    return decode(_decoders[kind, form], body)


def _check_facts_size(size: int) -> None:
    if size > MOST_FACTS_BYTES:
        raise over_limit(
            InvalidInput, "the field `facts`", seen=size, limit=MOST_FACTS_BYTES, setting="no option", unit="bytes"
        )


def check_rows(rows: Sequence[Row]) -> None:
    if len(rows) > MOST_ROWS:
        raise InvalidInput(f"the reference has {len(rows)} rows, over the limit of {MOST_ROWS}", param="reference")


def is_form(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == FORM


def read_form(body: bytes, content_type: str) -> Form:
    """Fields `name`, `base`, `note`, `reference` (a JSON object a line); every other part that has a file name is
    a file of the model, in that place. Raises InvalidInput.
    """
    from multipart import MultipartError, parse_options_header

    options: dict[str, str] = parse_options_header(content_type)[1]
    if not options.get("boundary"):
        raise InvalidInput(f"content-type is {FORM} without a boundary")
    try:
        fields, contents = _parts(body, options["boundary"])
        texts = {name: value.decode() for name, value in fields.items()}
    except MultipartError as error:
        raise InvalidInput(f"the form cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"a field of the form is not UTF-8: {error}") from error
    unknown = sorted(texts.keys() - {"name", "base", "note", "reference"})
    if unknown or "name" not in texts:
        wrong = f"has a field {unknown[0][:100]!r}" if unknown else "has no field `name`"
        raise InvalidInput(f"the form {wrong}; it takes name, base, note, reference, and files")
    rows = [decode(_row, line) for line in texts.pop("reference", "").encode().splitlines() if line.strip()]
    check_rows(rows)
    files = tuple(File(path, hashlib.sha256(data).hexdigest(), len(data)) for path, data in contents.items())
    said = msgspec.convert(texts, Push)
    return Form(msgspec.structs.replace(said, files=files, reference=tuple(rows)), contents)


def _parts(body: bytes, boundary: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
    from multipart import PushMultipartParser

    fields: dict[str, bytes] = {}
    contents: dict[str, bytes] = {}
    pieces: list[bytes] = []
    place: tuple[dict[str, bytes], str] = fields, ""
    with PushMultipartParser(boundary, max_segment_count=_MOST_PARTS, content_length=len(body)) as parser:
        for event in parser.parse(body):
            if event is None:
                into, name = place
                into[name], pieces = b"".join(pieces), []
            elif isinstance(event, bytes | bytearray):
                pieces.append(bytes(event))
            else:
                is_file = event.filename is not None and event.name != "reference"
                place = (contents, event.filename) if is_file else (fields, event.name)
                if place[1] in place[0]:
                    raise InvalidInput(f"the form holds {place[1][:100]!r} twice")
    for name, value in fields.items():
        if len(value) > _MOST_FIELD_BYTES:
            raise over_limit(
                InvalidInput, f"the form's field {name[:100]!r}", seen=len(value), limit=_MOST_FIELD_BYTES,
                setting="no option", unit="bytes",
            )  # fmt: skip
    return fields, contents


_row = msgspec.json.Decoder(Row)


def question(query: bytes) -> dict[str, str]:
    """Of a parameter that is there twice, the last."""
    return {name: values[-1] for name, values in parse_qs(query.decode("latin-1"), keep_blank_values=True).items()}


def number(asked: Mapping[str, str], name: str) -> int:
    """Raises InvalidInput unless it is there, as a whole number from 0."""
    text = asked.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidInput(f"?{name}= must be a whole number of bytes, not {text[:40]!r}", param=name)
    return int(text)


def is_set(asked: Mapping[str, str], name: str) -> bool:
    return asked.get(name, "0").lower() not in ("0", "false", "no")


def described(state: NameState) -> dict[str, Any]:
    """A name's versions, the newest first, and its aliases."""
    versions = [_version(version) for _, version in sorted(state.versions.items(), reverse=True)]
    return {
        "name": state.name, "current": state.current, "aliases": state.aliases, "versions": versions,
        "changes": state.number,
    }  # fmt: skip


def _version(version: Version) -> dict[str, Any]:
    return {
        "version": version.number, "digest": version.digest, "size_bytes": version.size_bytes,
        "tasks": version.facts.tasks, "base": version.base, "at": version.at, "who": version.who,
    }  # fmt: skip


def pushed(name: str, digest: str, done: Published) -> dict[str, Any]:
    """What a push came to; version 0 where it was only tried."""
    proved, version = done.proved, done.version
    return {
        "name": name, "version": version.number if version else 0, "digest": digest,
        "size_bytes": proved.size_bytes, "base": proved.base, "card": proved.card, "facts": proved.facts,
        "rows_compared": proved.rows_compared, "nearest": proved.nearest, "node": proved.node,
        "new": done.is_new,
    }  # fmt: skip


def answer(status: int, body: Mapping[str, Any], *more: tuple[str, str]) -> Reply:
    return Reply(status, (("content-type", JSON), *more), msgspec.json.encode(body))
