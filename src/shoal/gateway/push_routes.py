"""What can be asked of pushed models, by path: which scope each needs, and what is done. Changes go through the
publisher, files through the registry; nothing here is on the way of a request to compute.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from shoal.catalog.ledger import NameState
from shoal.catalog.manifests import File, Manifest
from shoal.catalog.names import check_name
from shoal.catalog.proof import Prove
from shoal.catalog.registry import CHUNK_BYTES
from shoal.catalog.unfinished import Unfinished
from shoal.dialects import Reply
from shoal.gateway import push_bodies as bodies
from shoal.gateway.access import ANY_KEY, ANY_PUSH, Caller
from shoal.gateway.access import push as push_of
from shoal.gateway.publishing import Publisher
from shoal.gateway.push_bodies import answer
from shoal.protocol.errors import (
    Conflict,
    InvalidInput,
    MethodNotAllowed,
    ModelNotFound,
    PayloadTooLarge,
    UnsupportedMediaType,
    over_limit,
)

AT_ONCE_BYTES = 64 * 1024
_UPLOADS, _NAMES = "/v1/uploads", "/v1/configs/models"
_PATHS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("uploads", re.compile(_UPLOADS)),
    ("upload", re.compile(f"{_UPLOADS}/(?P<sha256>[^/]+)")),
    ("names", re.compile(_NAMES)),
    ("history", re.compile(f"{_NAMES}/(?P<name>.+)/history")),
    ("rollback", re.compile(f"{_NAMES}/(?P<name>.+)/rollback")),
    ("alias", re.compile(f"{_NAMES}/(?P<name>.+)/aliases/(?P<alias>[^/]+)")),
    ("name", re.compile(f"{_NAMES}/(?P<name>.+)")),
)
"""The first that fits the whole path. A model called `history` and the like is written with `__` for its slash."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request whose body is here."""

    words: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes
    content_type: str
    caller: Caller
    check: Callable[[str], None]
    """Raises Forbidden where whoever asks may not push what is called so."""


class Route(msgspec.Struct, frozen=True):
    """`needed` is the scope, of which a route whose path names a model needs that for its name. A body has at most
    `most_bytes`; 0: as any. What `is_long` takes as long as a client may ask for, where it names no time.
    """

    name: str
    run: Callable[["PushRoutes", Asked], Awaitable[Reply]]
    needed: str
    most_bytes: int = 0
    is_long: bool = False


class Found(msgspec.Struct, frozen=True):
    route: Route
    words: Mapping[str, str]

    @property
    def needed(self) -> str:
        """Raises InvalidInput for a name that no model can have."""
        if self.route.needed == ANY_PUSH and "name" in self.words:
            return push_of(_name(self.words["name"])[0])
        return self.route.needed


def find(method: str, path: str) -> Found | None:
    """None for a path of others. Raises MethodNotAllowed."""
    if not path.startswith((_UPLOADS, _NAMES)):
        return None
    for place, pattern in _PATHS:
        if (match := pattern.fullmatch(path)) is not None:
            by_method = _ROUTES[place]
            if method not in by_method:
                raise MethodNotAllowed(f"{path[:200]} takes {', '.join(by_method)}", allow=sorted(by_method))
            return Found(by_method[method], match.groupdict())
    return None


class PushRoutes:
    def __init__(self, publisher: Publisher, chunk_bytes: int = CHUNK_BYTES) -> None:
        """`chunk_bytes` is the most that one part of a file may have here."""
        self._publisher, self._chunk_bytes = publisher, chunk_bytes
        self._unfinished = Unfinished(publisher.registry)

    async def limits(self, asked: Asked) -> Reply:
        """What is taken; with ?name=, and ?base=, also whether that can be pushed by whoever asks."""
        if name := asked.query.get("name", ""):
            asked.check(check_name(name))
            self._publisher.check(name, asked.query.get("base", ""))
        limits = msgspec.to_builtins(self._publisher.registry.limits)
        return answer(200, limits | {"chunk_bytes": self._chunk_bytes})

    async def offer(self, asked: Asked) -> Reply:
        """Which of the files are missing, and from which byte on."""
        manifest: Manifest = await _read(Manifest, asked)
        missing = await self._publisher.registry.missing(manifest, asked.caller.id)
        sizes = {file.sha256: file.size_bytes for file in manifest.files}
        to_come = sum(sizes[sha256] - offset for sha256, offset in missing.items())
        await self._unfinished.look(to_come, asked.caller.id)
        told = {"digest": manifest.digest, "size_bytes": manifest.size_bytes, "missing": missing}
        return answer(200, told | {"chunk_bytes": self._chunk_bytes})

    async def reached(self, asked: Asked) -> Reply:
        """How much of a file is here."""
        file = self._file(asked)
        try:
            return _received(file, await self._publisher.registry.receive(file, 0, b"", asked.caller.id))
        except Conflict as error:
            return _received(file, int(error.detail["offset"]))

    async def receive(self, asked: Asked) -> Reply:
        file, offset = self._file(asked), bodies.number(asked.query, "offset")
        await self._unfinished.take(len(asked.body), asked.caller.id)
        return _received(file, await self._publisher.registry.receive(file, offset, asked.body, asked.caller.id))

    def _file(self, asked: Asked) -> File:
        """The path is only for words. Raises InvalidInput, and PayloadTooLarge for what no model may have."""
        sha256, size = asked.words["sha256"], bodies.number(asked.query, "size")
        if not re.fullmatch("[0-9a-f]{64}", sha256):
            raise InvalidInput("a file is sent to the sha256 of its content, in 64 small hexadecimal digits")
        limit = self._publisher.registry.limits.artifact_bytes
        if size > limit:
            raise over_limit(
                PayloadTooLarge, "the file", seen=size, limit=limit, setting="--max-artifact-bytes", unit="bytes"
            )
        return File(asked.query.get("path", "")[:200] or f"file {sha256[:12]}", sha256, size)

    async def publish(self, asked: Asked) -> Reply:
        """1. The name, and whether its scope is there. 2. Files that came along. 3. All of them are here.
        4. Proof, ledger, board.
        """
        said, contents = await self._said(asked)
        name, version = _name(said.name)
        if version:
            raise InvalidInput(f"{said.name[:200]!r} names a version, and a push makes the next one of a name")
        asked.check(name)  # 1
        manifest, dry_run = Manifest(said.files), bodies.is_set(asked.query, "dry_run")
        if contents:
            await self._take(manifest, contents, asked.caller.id)  # 2
        digest = await self._publisher.registry.commit(manifest)  # 3
        prove = Prove(name=name, digest=digest, base=said.base, facts=said.facts, reference=said.reference)
        done = await self._publisher.publish(prove, asked.caller.who, said.note, dry_run=dry_run)  # 4
        return answer(200 if dry_run else 201, bodies.pushed(name, digest, done))

    async def _said(self, asked: Asked) -> tuple[bodies.Push, Mapping[str, bytes]]:
        if bodies.is_form(asked.content_type):
            form = await asyncio.to_thread(bodies.read_form, asked.body, asked.content_type)
            return form.push, form.contents
        if "yaml" in asked.content_type:
            raise UnsupportedMediaType("a model is described as JSON or msgpack, or comes as a form; not as YAML")
        return await _read(bodies.Push, asked), {}

    async def _take(self, manifest: Manifest, contents: Mapping[str, bytes], sender: str) -> None:
        registry = self._publisher.registry
        missing = await registry.missing(manifest, sender)
        for file in manifest.files:
            offset = missing.pop(file.sha256, file.size_bytes)
            while offset < file.size_bytes:
                part = contents[file.path][offset : offset + CHUNK_BYTES]
                await self._unfinished.take(len(part), sender)
                try:
                    offset = await registry.receive(file, offset, part, sender)
                except Conflict as error:  # somebody else sends the same file
                    offset = int(error.detail["offset"])

    async def names(self, asked: Asked) -> Reply:
        states = await self._publisher.states()
        return answer(200, {"models": [bodies.described(state) for state in states.values() if state.is_there]})

    async def name(self, asked: Asked) -> Reply:
        return _described(await self._state(asked))

    async def history(self, asked: Asked) -> Reply:
        """Also of a name that was removed."""
        state = await self._state(asked, also_removed=True)
        return answer(200, {"name": state.name, "history": state.history})

    async def alias(self, asked: Asked) -> Reply:
        said = bodies.read(bodies.Alias, asked.body, asked.content_type, may_be_empty=True)
        name, alias = _name(asked.words["name"])[0], asked.words["alias"]
        return _described(await self._publisher.alias(name, alias, said.version, asked.caller.who, said.note))

    async def unalias(self, asked: Asked) -> Reply:
        name, alias = _name(asked.words["name"])[0], asked.words["alias"]
        return _described(await self._publisher.remove(name, asked.caller.who, alias=alias))

    async def rollback(self, asked: Asked) -> Reply:
        said = bodies.read(bodies.Rollback, asked.body, asked.content_type, may_be_empty=True)
        name = _name(asked.words["name"])[0]
        state = await self._publisher.rollback(name, said.alias, said.version, asked.caller.who, said.note)
        return _described(state)

    async def remove(self, asked: Asked) -> Reply:
        """The name, or the version or alias that is said with it."""
        name, which = _name(asked.words["name"])
        version = int(which) if which.isascii() and which.isdigit() and len(which) < 10 else 0
        alias = "" if version else which
        return _described(await self._publisher.remove(name, asked.caller.who, version=version, alias=alias))

    async def _state(self, asked: Asked, *, also_removed: bool = False) -> NameState:
        state = await self._publisher.state(_name(asked.words["name"])[0])
        if not state.is_there and not also_removed:
            raise ModelNotFound(f"{state.name} was removed; its history is still there", model=state.name)
        return state


async def _read(kind: type[Any], asked: Asked) -> Any:
    """Off the loop where it is large."""
    if len(asked.body) <= AT_ONCE_BYTES:
        return bodies.read(kind, asked.body, asked.content_type)
    return await asyncio.to_thread(bodies.read, kind, asked.body, asked.content_type)


def _name(written: str) -> tuple[str, str]:
    """The model and what stands after its `@`. Raises InvalidInput for a name that no model can have."""
    name, is_said, version = written.partition("@")
    if is_said and not version:
        raise InvalidInput(f"{written[:200]!r} does not say which version or alias")
    return check_name(name.replace("__", "/", 1) if "/" not in name else name), version


def _received(file: File, offset: int) -> Reply:
    told = {"sha256": file.sha256, "offset": offset, "size_bytes": file.size_bytes}
    return answer(200, told, ("x-shoal-offset", str(offset)))


def _described(state: NameState) -> Reply:
    return answer(200, bodies.described(state))


_ROUTES: dict[str, dict[str, Route]] = {
    "uploads": {
        "GET": Route("upload_limits", PushRoutes.limits, ANY_KEY),
        "POST": Route("uploads", PushRoutes.offer, ANY_PUSH, CHUNK_BYTES),
    },
    "upload": {
        "GET": Route("upload_reached", PushRoutes.reached, ANY_PUSH),
        "HEAD": Route("upload_reached", PushRoutes.reached, ANY_PUSH),
        "PUT": Route("upload", PushRoutes.receive, ANY_PUSH, CHUNK_BYTES),
    },
    "names": {
        "GET": Route("pushed", PushRoutes.names, ANY_KEY),
        "POST": Route("push", PushRoutes.publish, ANY_PUSH, is_long=True),
    },
    "name": {
        "GET": Route("pushed_name", PushRoutes.name, ANY_KEY),
        "DELETE": Route("pushed_remove", PushRoutes.remove, ANY_PUSH),
    },
    "history": {"GET": Route("pushed_history", PushRoutes.history, ANY_KEY)},
    "rollback": {"POST": Route("rollback", PushRoutes.rollback, ANY_PUSH)},
    "alias": {
        "PUT": Route("alias", PushRoutes.alias, ANY_PUSH),
        "DELETE": Route("unalias", PushRoutes.unalias, ANY_PUSH),
    },
}
