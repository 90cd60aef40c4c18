"""Pulling from whichever of several lines has waited longest: for a device that many models share.

Which one that is the nodes tell each other, as they do of a line's classes (`classes.Served`).
"""

import asyncio
import contextlib
import random
from collections.abc import Iterable, Mapping

from shoal.protocol import subjects
from shoal.protocol.errors import QueueUnavailable
from shoal.queue import Bounds
from shoal.queue import jetstream_frames as frames
from shoal.queue.classes import Served
from shoal.queue.jetstream_api import Api
from shoal.queue.jetstream_bells import Bells, Ear
from shoal.queue.jetstream_held import JetStreamDelivery
from shoal.queue.jetstream_link import Link
from shoal.queue.jetstream_pulls import Pulls
from shoal.queue.jetstream_served import MOST_TELLERS

LOOK_EVERY_S = 1.0
"""A bell may be lost with the node that heard it."""


class AnyPulls:
    def __init__(self, link: Link, api: Api, pulls: Pulls, bells: Bells, pool: str, name: str) -> None:
        self._link, self._api, self._pulls, self._bells = link, api, pulls, bells
        self._pool, self._name = pool, name
        self._loop = asyncio.get_running_loop()
        self._heads = Served()
        self._era = ""
        self._heard: int | None = None  # of others, since we last told; None while we listen to none
        self._ears: dict[Ear, asyncio.Task[None] | None] = {}

    def begin(self, era: str) -> None:
        """`era` is when the stream was made: places in another mean nothing."""
        if era != self._era:
            self._era, self._heads = era, Served()

    async def pull(
        self, wanted: Mapping[str, Bounds], wait_s: float, stop: asyncio.Event
    ) -> tuple[str, list[JetStreamDelivery]]:
        """1. What has waited longest, as far as we were told. 2. What the server says there is, lent jobs too.
        3. The same once more, now that the next job is heard of. 4. What rings."""
        if self._heard is None:
            self._heard = 0
            self._link.subscribe(subjects.heads(self._pool), self._on_told)
        until = self._loop.time() + wait_s
        if found := await self._first_of(self._heads.in_order(wanted)[:1], wanted):  # 1
            return found
        if found := await self._first_of(await self._with_jobs(wanted), wanted):  # 2
            return found
        if wait_s <= 0 or stop.is_set():
            return "", []
        ear = self._bells.listen(wanted)
        self._ears[ear] = None
        try:
            names = await self._with_jobs(wanted)
            while True:
                if found := await self._first_of(names, wanted, ear):  # 3, 4
                    return found
                if (rest := until - self._loop.time()) <= 0 or stop.is_set() or self._pulls.is_closed:
                    return "", []
                is_told = await _heard(ear, stop, min(rest, LOOK_EVERY_S))
                names = set(ear.rung) if is_told else await self._with_jobs(wanted)
        finally:
            closing = self._ears[ear] = self._bells.close(ear)
            closing.add_done_callback(lambda _: self._ears.pop(ear, None))

    def wake(self) -> None:
        """Whoever waits looks again."""
        for ear in self._ears:
            ear.news.set()

    async def withdraw(self) -> None:
        await asyncio.gather(*(closing for closing in self._ears.values() if closing is not None))

    async def _first_of(
        self, names: Iterable[str], wanted: Mapping[str, Bounds], ear: Ear | None = None
    ) -> tuple[str, list[JetStreamDelivery]] | None:
        for name in self._heads.in_order(names):
            bell, bounds = ear.rung.pop(name, "") if ear is not None else "", wanted[name]
            deliveries = await self._pulls.pull(name, bounds.jobs, bounds.size_bytes, 0.0)
            if deliveries and ear is not None and bell and self._pulls.last_place(name)[1]:
                ear.rung.setdefault(name, bell)  # there is more of it
            if (least := self._pulls.least_served(name)) is not None:
                self._heads.took(name, least, 1)
            elif deliveries:
                self._heads.took(name, *self._pulls.last_place(name))
            else:
                self._heads.found_empty(name)
            self._tell(name)
            if deliveries:
                return name, deliveries
        return None

    async def _with_jobs(self, wanted: Mapping[str, Bounds]) -> set[str]:
        with contextlib.suppress(QueueUnavailable):  # it comes back, or the wait ends
            state = await self._api.counts()
            for subject in state.subjects:
                source = subjects.priority_of(subject), subjects.class_of(subject)
                self._pulls.note(subjects.line_of(subject), source)
            return {name for subject in state.subjects if (name := subjects.line_of(subject)) in wanted}
        return set()

    def _tell(self, name: str) -> None:
        heard, self._heard = self._heard or 0, 0
        if heard > MOST_TELLERS and random.random() > MOST_TELLERS / heard:  # noqa: S311
            return
        marks, newest = self._heads.told([name])
        told = frames.Served(self._name, self._era, "interactive", newest, marks)
        self._link.publish(subjects.heads(self._pool), frames.encode_served(told))

    def _on_told(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        told = frames.decode_served(payload)
        if told.node != self._name and told.era == self._era:
            self._heard = (self._heard or 0) + 1
            self._heads.heard(told.marks, told.newest)


async def _heard(ear: Ear, stop: asyncio.Event, within_s: float) -> bool:
    """Whether a bell rang in time; `stop` ends the wait too."""
    if not ear.rung:
        ear.news.clear()
        waits = [asyncio.ensure_future(ear.news.wait()), asyncio.ensure_future(stop.wait())]
        try:
            await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
    return bool(ear.rung)
