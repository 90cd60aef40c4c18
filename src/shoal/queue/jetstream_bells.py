"""Bells: how nodes that wait on several lines at once hear of the next job, and how others find out who waits.

The queue server repeats each job's subject where nodes with nothing to do listen, to two of them at most. A
request parked on each line instead could not be taken back: once the node has work, those of the other lines
would bring it more. A bell that reaches a node which has found work meanwhile is rung again, for others.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection

from shoal.protocol import subjects
from shoal.protocol.errors import QueueUnavailable
from shoal.queue.jetstream_line import Source
from shoal.queue.jetstream_link import Link

ANSWER_WITHIN_S = 0.2
GROUPS = ("even", "odd")
"""A job rings at one node of each: one that stands still does not keep it from all others."""


class Ear:
    """One node waiting on some lines. `rung` are those of which a job was heard of that it did not look for yet,
    and the bell of each."""

    def __init__(self) -> None:
        self.rung: dict[str, str] = {}
        self.is_open = True
        self.numbers: list[int] = []
        self.news = asyncio.Event()


class Bells:
    def __init__(self, link: Link, pool: str, name: str, note: Callable[[str, Source], None]) -> None:
        """`note` is told of each line's priorities and classes that are heard of."""
        self._link, self._pool, self._name, self._note = link, pool, name.encode(), note
        self._group = GROUPS[int(name, 16) % len(GROUPS)]

    def listen(self, lines: Collection[str]) -> Ear:
        ear = Ear()

        def on_bell(subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
            if not ear.is_open:
                self._link.publish(subject.decode(), payload, reply.decode())
            elif reply and payload != self._name:
                self._link.publish(reply.decode())
            elif not reply:
                rung = subject.decode()
                line = subjects.line_of(rung)
                self._note(line, (subjects.priority_of(rung), subjects.class_of(rung)))
                ear.rung[line] = rung
                ear.news.set()

        for line in lines:
            for subject in subjects.bells_of(self._pool, line):
                ear.numbers.append(self._link.subscribe(subject, on_bell, self._group))
        return ear

    def close(self, ear: Ear) -> asyncio.Task[None]:
        """It has found work, or waits no more. What it heard of and left, and what the server had sent it before,
        is rung again."""
        ear.is_open = False
        return asyncio.get_running_loop().create_task(self._leave(ear))

    async def _leave(self, ear: Ear) -> None:
        await self._link.unsubscribe(*ear.numbers)
        for bell in ear.rung.values():
            self._link.publish(bell)

    async def somebody_listens(self, line: str) -> bool:
        """Whether another node with nothing to do waits on this line, among others."""
        with contextlib.suppress(QueueUnavailable):  # who was asked has just found work, or is this node itself
            headers, _ = await self._link.request(subjects.bell(self._pool, line), self._name, ANSWER_WITHIN_S)
            return not headers  # a status says that nobody does
        return False
