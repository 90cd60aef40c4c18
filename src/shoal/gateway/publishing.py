"""How a push becomes something that is served: judged, proved on a node, written down, told to everyone. And the
other changes of pushed names, which need no proof.

Knows the queue, the registry and what names mean here. Does not know HTTP, nor who may do what.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import msgspec

from shoal.catalog import Artifact, Card, Model, proof
from shoal.catalog.ledger import Aliased, Change, NameState, Pushed, Removed, RolledBack, Version
from shoal.catalog.names import check_name
from shoal.catalog.proof import LINE, TASK, Prove, Proved
from shoal.catalog.registry import Registry
from shoal.observe import log as logs
from shoal.protocol.envelope import Envelope, Job
from shoal.protocol.errors import Conflict, DeadlineExceeded, InvalidInput, NoNode, NotFound
from shoal.protocol.status import NodeStatus
from shoal.queue import Inbox, Queue

log = logging.getLogger("shoal.gateway")
PROVED_WITHIN_S = 600.0
"""Waiting for a node included, and the fetching of the files."""


class Models(Protocol):
    """What clients can ask for here (catalog.stock, catalog.shared)."""

    def resolve(self, name: str) -> Model: ...
    def models(self) -> dict[str, Model]: ...
    def cards(self) -> dict[str, Card]: ...


class Published(msgspec.Struct, frozen=True):
    """`version` is None where the push was only tried; whether it `is_new`, or was there before."""

    proved: Proved
    version: Version | None = None
    is_new: bool = True


class _UnderWay:
    """A push that is being proved, and how many wait for what it comes to."""

    def __init__(self, asked: Prove, dry_run: bool, doing: "asyncio.Task[Published]") -> None:
        self.asked, self.dry_run, self.doing = asked, dry_run, doing
        self.waiting = 0


class Publisher:
    """`nodes` are those that compute, as they last told of themselves; `announce` tells everyone of a state."""

    def __init__(
        self,
        queue: Queue,
        registry: Registry,
        models: Models,
        nodes: Callable[[], list[NodeStatus]],
        announce: Callable[[NameState], Awaitable[None]],
        objects: str = "",
        within_s: float = PROVED_WITHIN_S,
    ) -> None:
        """`objects` is the id of the registry's object store."""
        self._queue, self.registry, self._models, self._nodes = queue, registry, models, nodes
        self._announce, self._objects, self._within_s = announce, objects, within_s
        self._pushing: dict[str, _UnderWay] = {}
        self._writing: set[asyncio.Task[NameState]] = set()

    async def publish(self, asked: Prove, who: str, note: str = "", *, dry_run: bool = False) -> Published:
        """Prove an artifact that was committed, and make it the current version of its name, unless `dry_run`.

        1. The same is being pushed here: a client that lost its connection asks again before we know that it did,
        and waits for the same answer. 2. The name can be had, and nobody else is pushing it here. 3. The base is
        there. Then `_published`, as long as anybody waits for it.
        Raises Conflict, InvalidInput, ModelNotFound, and what a node refused it with.
        """
        proof.check_facts(asked.facts)
        under_way = self._pushing.get(asked.name)
        if under_way is None or (under_way.asked, under_way.dry_run) != (asked, dry_run):  # 1
            self.check(asked.name, asked.base)  # 2, 3
            doing = asyncio.create_task(self._published(asked, who, note, dry_run))
            under_way = self._pushing[asked.name] = _UnderWay(asked, dry_run, doing)
        under_way.waiting += 1
        try:
            return await asyncio.shield(under_way.doing)
        finally:
            under_way.waiting -= 1
            if not under_way.waiting:
                under_way.doing.cancel()
                self._pushing.pop(asked.name, None)

    async def _published(self, asked: Prove, who: str, note: str, dry_run: bool) -> Published:
        """4. A node proves it. 5. The ledger has it: unless another was quicker. 6. Everyone is told."""
        before = await self.registry.state(asked.name)
        proved = await self._prove(asked)  # 4
        if dry_run:
            return Published(proved)
        await self._check_base_stays(proved.base)
        change = Pushed(
            at=time.time(), who=who, note=note, digest=asked.digest, card=proved.card, facts=proved.facts,
            size_bytes=proved.size_bytes, base=proved.base, base_digest=proved.base_digest,
        )  # fmt: skip
        state = await self._append(asked.name, change, before.number)  # 5, 6
        version = state.versions[state.current]
        return Published(proved, version, is_new=version.at == change.at)

    def check(self, name: str, base: str = "") -> None:
        """Before any file is here. Raises Conflict, InvalidInput, ModelNotFound, NoNode, NotFound."""
        check_name(name)
        if name in self._pushing:
            raise Conflict(f"{name} is being pushed by another just now; look at that first, then push again")
        if self._is_taken(name):
            raise Conflict(
                f"{name} is the name of a model that was not pushed; take another name", model=name, taken=True
            )
        if base:
            self._check_base(base)
        self._check_provers()

    async def alias(self, name: str, alias: str, version: int, who: str, note: str = "") -> NameState:
        """`version` 0 is the current one. Raises InvalidInput, ModelNotFound, Conflict; so do the next three."""
        return await self._append(name, Aliased(at=time.time(), who=who, note=note, alias=alias, version=version))

    async def rollback(self, name: str, alias: str, version: int, who: str, note: str = "") -> NameState:
        """`alias` "" is what the name alone means; `version` 0 is what it meant before."""
        change = RolledBack(at=time.time(), who=who, note=note, alias=alias, version=version)
        return await self._append(name, change)

    async def remove(self, name: str, who: str, *, version: int = 0, alias: str = "", note: str = "") -> NameState:
        """One version or one alias; the whole name where neither is said."""
        if not alias:
            await self._check_unused(name, version)
        return await self._append(name, Removed(at=time.time(), who=who, note=note, version=version, alias=alias))

    async def state(self, name: str) -> NameState:
        """With its history; of a name that was removed too. Raises ModelNotFound for one that nobody pushed."""
        state = await self.registry.state(name)
        if not state.number:
            self._models.resolve(name)  # says what is near
            raise InvalidInput(f"{name} was not pushed: it has no versions and no history")
        return state

    async def states(self) -> dict[str, NameState]:
        return await self.registry.names()

    async def _append(self, name: str, change: Change, since: int | None = None) -> NameState:
        """Whoever asked may leave meanwhile: what is written is also told."""
        writing = asyncio.create_task(self._write(name, change, since))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        return await asyncio.shield(writing)

    async def _write(self, name: str, change: Change, since: int | None) -> NameState:
        state = await self.registry.append(name, change, since=since, taken=self._is_taken)
        await self._announce(state)
        if state.history and state.history[-1].at == change.at:  # it came to something
            told = logs.fields(model=name, what=state.history[-1].what, by=change.who, number=state.number)
            log.info("a pushed name was changed", extra=told)
        return state

    def _is_taken(self, name: str) -> bool:
        """By a model that some machine holds, or a card that ships."""
        known = self._models.cards().get(name)
        return known is not None and not isinstance(known.source, Artifact)

    def _check_base(self, name: str) -> None:
        base = self._models.resolve(name)
        if base.card.base:
            raise InvalidInput(
                f"{name} is an adapter itself, of {base.card.base}; an adapter changes a whole model", param="base"
            )
        if base.variant:
            raise InvalidInput(
                f"an adapter belongs to {base.plain_name}, whose variants all can use it", param="base"
            )

    async def _check_base_stays(self, base: str) -> None:
        """Raises Conflict where a version that an adapter was proved on was removed meanwhile. One that was not
        pushed is not ours to look at."""
        name, _, number = base.partition("@")
        if number and int(number) not in (await self.registry.state(name)).versions:
            raise Conflict(f"{base}, which this adapter changes, was removed meanwhile", model=base)

    async def _check_unused(self, name: str, version: int) -> None:
        """Raises Conflict where adapters would be left without what they change."""
        users = adapters_of(name, version, (await self.registry.names()).values())
        if users:
            raise Conflict(
                f"{name} has adapters, which are nothing without it: remove {', '.join(users[:5])} before",
                adapters=users,
            )

    def _check_provers(self) -> None:
        """Raises NoNode, where one may come; NotFound where those that are there never could."""
        at_work = [node for node in self._nodes() if not node.draining]
        if not at_work:
            raise NoNode("no node is there that could prove a push; `shoal node` starts one, then ask again")
        if self._objects not in (stores := {node.objects for node in at_work} - {""}):
            raise NotFound(
                "no node here can prove a push: that takes an object store which gateways and nodes share "
                f"(`--objects`), and {'those of the nodes are others' if stores else 'no node has any'}",
                setting="--objects",
            )

    async def _prove(self, asked: Prove) -> Proved:
        body = proof.question(msgspec.structs.replace(asked, objects=self._objects))
        now = time.time()
        envelope = Envelope(
            id=f"push-{secrets.token_hex(8)}", task=TASK, model=asked.name, line=LINE, dialect=TASK, route=TASK,
            deadline=now + self._within_s, received=now, size_bytes=len(body),
        )  # fmt: skip
        inbox = await self._queue.publish(Job(envelope, body))
        try:
            async with asyncio.timeout(self._within_s):
                status, data = await _whole(inbox)
        except TimeoutError:
            raise DeadlineExceeded(
                f"{asked.name} was not proved within {self._within_s:.0f} s: every node that could is busy, or it "
                "takes longer than that to fetch and load"
            ) from None
        finally:
            inbox.close()
        return proof.read_answer(status, data)


def adapters_of(name: str, version: int, states: Iterable[NameState]) -> list[str]:
    """The pushed adapters that change a version of this name, 0 for any: also earlier versions of them, which
    somebody may ask for or go back to."""
    return sorted(
        state.name if each.number == state.current else f"{state.name}@{each.number}"
        for state in states
        for each in state.versions.values()
        if _is_on(each.base, name, version) and state.name != name
    )


def _is_on(base: str, name: str, version: int) -> bool:
    on, _, number = base.partition("@")
    return on == name and (not version or number == str(version))


async def _whole(inbox: Inbox) -> tuple[int, bytes]:
    chunk = await inbox.next()
    status, data = chunk.status, [chunk.data]
    while not chunk.last:
        chunk = await inbox.next()
        data.append(chunk.data)
    return status, b"".join(data)
