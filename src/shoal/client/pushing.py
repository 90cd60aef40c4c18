"""push: a folder's files sent as far as the server lacks them, then proved and given a version. And what is asked
about pushed names afterwards.

Nothing here does network I/O; the flow of a push reads the files that it sends.
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from shoal.catalog.manifests import Limits, Manifest, Read
from shoal.client import answers
from shoal.client.calls import Call, ask, only
from shoal.client.errors import ServerUnreachable
from shoal.client.flow import Flow, Request, Sleep, Terms
from shoal.client.reference import Reference, rows_of
from shoal.client.retry import backoff_s, longest_s
from shoal.client.uploading import Sending, send

Progress = Callable[[str, int, int], None]
"""Told what is being done, and bytes done of bytes in all (0 where that is not known)."""

MOST_LOSSES = 3
"""So often a question about a push may be lost before we give up."""


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """What a push came to. `version` is 0 where it was only tried. `nearest` is the worst cosine (of scores: the
    worst agreement) with the reference, None without one; `sent_bytes` what had to be sent. Not `new`: the version
    was there, with the same files on the same base.
    """

    name: str
    version: int
    digest: str
    size_bytes: int
    card: dict[str, Any]
    facts: dict[str, Any]
    base: str = ""
    rows_compared: int = 0
    nearest: float | None = None
    node: str = ""
    new: bool = True
    sent_bytes: int = 0


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """All that is told of a push but its files."""

    name: str
    base: str = ""
    reference: Reference | None = None
    note: str = ""
    facts: Mapping[str, Any] = {}
    dry_run: bool = False


def silent(stage: str, done: int, total: int) -> None:
    """A `Progress` to nobody."""


def limits(terms: Terms, name: str, base: str) -> Call[Limits]:
    """What the server takes. Raises what it would refuse the push with anyway, before any file is read."""
    path = f"/v1/uploads?name={quote(name, safe='/', errors='replace')}"
    if base:
        path += f"&base={quote(base, safe='/:@', errors='replace')}"
    request = Request("GET", path, _JSON)
    return only(ask(terms, request, lambda body: answers.decoded(_limits, body)))


def push(terms: Terms, read: Read, asked: Asked, progress: Progress | None = None) -> Call[Pushed]:
    """See `Client.push`. Raises InvalidInput for a reference that is none."""
    reference = () if asked.reference is None else rows_of(asked.reference)
    return only(_push(terms, read, asked, reference, progress or silent))


def _push(terms: Terms, read: Read, asked: Asked, reference: tuple[Any, ...], progress: Progress) -> Flow[Pushed]:
    lacking: _Lacking = yield from _patiently(terms, lambda: _offer(terms, read.manifest))
    files = {file.sha256: file for file in read.manifest.files}
    total = sum(files[sha256].size_bytes - offset for sha256, offset in lacking.missing.items())
    done = 0
    for sha256, offset in lacking.missing.items():
        file, before = files[sha256], done - offset

        def tell(reached: int, path: str = file.path, before: int = before) -> None:
            progress(f"sending {path}", max(0, before + reached), total)

        yield from send(terms, Sending(file, read.places[file.path], lacking.chunk_bytes), offset, tell)
        done += file.size_bytes - offset
    progress("proving", 0, 0)
    fields = {
        "name": asked.name, "files": read.manifest.files, "base": asked.base, "note": asked.note,
        "reference": reference, "facts": dict(asked.facts),
    }  # fmt: skip
    said = {key: value for key, value in fields.items() if value}
    path = "/v1/configs/models?dry_run=1" if asked.dry_run else "/v1/configs/models"
    found: Pushed = yield from _patiently(terms, lambda: ask(terms, _packed("POST", path, said), _pushed))
    return msgspec.structs.replace(found, sent_bytes=total)


def _offer(terms: Terms, manifest: Manifest) -> "Flow[_Lacking]":
    request = _packed("POST", "/v1/uploads", {"files": manifest.files})
    return (yield from ask(terms, request, lambda body: answers.decoded(_lacking, body)))


def _patiently(terms: Terms, begin: Callable[[], Flow[Any]]) -> Flow[Any]:
    """A request that may be sent again however often it was lost: it comes to the same each time."""
    losses = 0
    while True:
        try:
            return (yield from begin())
        except ServerUnreachable as error:
            losses += 1
            if losses > MOST_LOSSES:
                raise
            pause = Sleep(backoff_s(losses, terms.chance()), error, longest_s(losses, MOST_LOSSES))
        yield pause


def alias(terms: Terms, name: str, alias: str, version: int) -> Call[dict[str, Any]]:
    path = f"{_path(name)}/aliases/{quote(alias, safe='', errors='replace')}"
    return only(ask(terms, _packed("PUT", path, {"version": version}), answers.description))


def rollback(terms: Terms, name: str, alias: str, version: int) -> Call[dict[str, Any]]:
    fields = {"alias": alias, "version": version}
    return only(ask(terms, _packed("POST", f"{_path(name)}/rollback", fields), answers.description))


def remove(terms: Terms, name: str) -> Call[dict[str, Any]]:
    return only(ask(terms, Request("DELETE", _path(name), _JSON), answers.description))


def history(terms: Terms, name: str) -> Call[list[dict[str, Any]]]:
    def events(body: bytes) -> list[dict[str, Any]]:
        return list(answers.description(body)["history"])

    return only(ask(terms, Request("GET", f"{_path(name)}/history", _JSON), events))


def pushed(terms: Terms, name: str) -> Call[dict[str, Any]]:
    return only(ask(terms, Request("GET", _path(name), _JSON), answers.description))


_JSON = {"accept": "application/json"}


def _path(name: str) -> str:
    """With `__` for the slash: `team/history` would be taken for the history of `team`."""
    return f"/v1/configs/models/{quote(name.replace('/', '__'), safe='@', errors='replace')}"


def _packed(method: str, path: str, fields: Mapping[str, Any]) -> Request:
    headers = {**_JSON, "content-type": "application/msgpack"}
    return Request(method, path, headers, msgspec.msgpack.encode(fields))


def _pushed(body: bytes) -> Pushed:
    return answers.decoded(_done, body)


class _Lacking(msgspec.Struct, frozen=True):
    missing: dict[str, int]
    chunk_bytes: int


_limits = msgspec.json.Decoder(Limits)
_lacking = msgspec.json.Decoder(_Lacking)
_done = msgspec.json.Decoder(Pushed)
