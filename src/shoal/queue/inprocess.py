"""The in-memory queue of one machine: the queue contract kept in this process, on one event loop.

It leases, redelivers and refuses exactly as the shared queue does, so that the road is the same code. What
it holds is gone with the process, as are the connections that wait for it.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from shoal.protocol.envelope import Chunk, Job, Priority
from shoal.protocol.errors import QueueFull, ShoalError, ShuttingDown, over_limit
from shoal.queue import Bounds, Delivery, Depth, Limits, Listener
from shoal.queue.answers import Answer
from shoal.queue.classes import ALONE, Apart
from shoal.queue.inprocess_line import Line, Source
from shoal.queue.waits import Crowd, refusal

log = logging.getLogger("shoal.queue")


class InProcessQueue:
    def __init__(self, limits: Limits | None = None, clock: Callable[[], float] = time.time) -> None:
        self._limits = limits or Limits()
        self._clock = clock
        self._lines: dict[str, Line] = {}
        self._crowds: dict[str, Crowd] = {}
        self._lent: dict[int, _Lent] = {}  # by lease token
        self._again: set[str] = set()  # jobs that were lent before and wait once more, or are lent again
        self._inboxes: dict[str, _Inbox] = {}
        self._listeners: list[Listener] = []
        self._tokens = itertools.count(1)
        self._sweeper: asyncio.TimerHandle | None = None
        self._apart = Apart()
        self._closed = False
        self._gives_none = False

    async def publish(self, job: Job) -> "_Inbox":
        envelope = job.envelope
        if self._closed:
            raise ShuttingDown("the queue is closed")
        if error := self.refusal(envelope.line, envelope.priority, envelope.deadline):
            raise error
        line = self._lines.setdefault(envelope.line, Line())
        self._check_room(line, envelope.line, len(job.body))
        inbox = _Inbox(self, envelope.id)
        self._inboxes[envelope.id] = inbox
        line.append(job, self._apart.class_of(envelope.line, len(job.body), self._clock()))
        self._crowds.setdefault(envelope.line, Crowd()).add(envelope.id, envelope.priority, len(job.body))
        self._announce(envelope.line, line)
        return inbox

    def keep_apart(self, line: str) -> None:
        self._apart.keep(line, self._clock())

    def refusal(self, line: str, priority: Priority, deadline: float) -> ShoalError | None:
        crowd = self._crowds.get(line)
        if crowd is None:
            return None
        return refusal(line, crowd.wait(priority), priority, deadline - self._clock(), self._limits.max_wait_s)

    def _check_room(self, line: "Line", name: str, more_bytes: int) -> None:
        limits = self._limits
        if line.jobs >= limits.jobs_per_line:
            raise over_limit(
                QueueFull, f"the line of {name}", seen=line.jobs + 1, limit=limits.jobs_per_line,
                setting="--queue-jobs", unit="jobs",
            )  # fmt: skip
        size = line.size_bytes + more_bytes
        if line.jobs and size > limits.bytes_per_line:
            raise over_limit(
                QueueFull, f"the line of {name}", seen=size, limit=limits.bytes_per_line,
                setting="--queue-bytes", unit="bytes",
            )  # fmt: skip

    async def pull(self, line: str, *, max_jobs: int, max_bytes: int, wait_s: float) -> list[Delivery]:
        if self._gives_none:
            return []
        waiting = self._lines.setdefault(line, Line())
        taken = self._take(line, waiting, max_jobs, max_bytes)
        if not taken and wait_s > 0 and not self._closed:
            await waiting.wait(wait_s)
            taken = self._take(line, waiting, max_jobs, max_bytes) if not self._gives_none else []
        if waiting.idle:
            self._lines.pop(line, None)
        return list(taken)

    async def pull_any(
        self, wanted: Mapping[str, Bounds], *, wait_s: float, stop: asyncio.Event
    ) -> tuple[str, list[Delivery]]:
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        while not self._gives_none:
            waiting = {name: line.oldest for name in wanted if (line := self._lines.get(name)) and line.jobs}
            if waiting:
                name = min(waiting, key=waiting.__getitem__)
                bounds = wanted[name]
                return name, await self.pull(name, max_jobs=bounds.jobs, max_bytes=bounds.size_bytes, wait_s=0.0)
            if stop.is_set() or self._closed or loop.time() >= until:
                break
            news: list[asyncio.Future[Any]] = [
                asyncio.ensure_future(self._lines.setdefault(name, Line()).wait(wait_s)) for name in wanted
            ]
            news.append(asyncio.ensure_future(stop.wait()))
            try:
                await asyncio.wait(news, timeout=until - loop.time(), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in news:
                    each.cancel()
                await asyncio.gather(*news, return_exceptions=True)
                for name in wanted:
                    if self._lines[name].idle:
                        del self._lines[name]
        return "", []

    async def depths(self) -> dict[str, Depth]:
        return {
            name: Depth(line.jobs, line.size_bytes, line.oldest) for name, line in self._lines.items() if line.jobs
        }

    async def others_waiting(self, line: str) -> int:
        return 0

    async def others_pull(self, line: str, within_s: float) -> bool:
        return False

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def stop_pulling(self) -> None:
        self._gives_none = True
        for line in self._lines.values():
            line.wake()

    async def close(self) -> None:
        self._closed = True
        if self._sweeper:
            self._sweeper.cancel()
        for line in self._lines.values():
            line.wake()

    def _take(self, name: str, line: "Line", max_jobs: int, max_bytes: int) -> "list[_Lent]":
        """Of jobs that are kept apart by size, those of one class: the one that has waited longest. Others only
        where it holds too little for a batch."""
        taken: list[_Lent] = []
        size = 0
        now = self._clock()
        source: Source | None = None
        while line.jobs and len(taken) < max_jobs:
            promote_before = now - self._limits.promote_after_s
            source = line.next_source(promote_before, source, size >= ALONE * max_bytes)
            if source is None:
                break
            size += len(line.head(source).body)
            if taken and size > max_bytes:
                break
            job, expires = line.popleft(source), now + self._limits.lease_s
            lent = _Lent(self, name, source[1], job, next(self._tokens), expires)
            self._lent[lent.token] = lent
            taken.append(lent)
        if taken and self._sweeper is None:
            self._sweep_in(self._limits.lease_s)
        return taken

    def _announce(self, name: str, line: "Line") -> None:
        line.wake()
        for listener in self._listeners:
            try:
                listener.work(name)
            except Exception:  # the job is accepted; a hint may be lost
                log.exception("a listener failed on a hint of work")

    def _sweep_in(self, seconds: float) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(seconds, self.redeliver_expired)

    def redeliver_expired(self) -> None:
        """Put jobs whose lease ran out back at the head of their lines. Runs by itself while any is lent."""
        self._sweeper = None
        now = self._clock()
        expired = [lent for lent in self._lent.values() if lent.expires <= now]
        for lent in reversed(expired):
            lent.give_back()
        if self._lent and not self._closed:
            self._sweep_in(max(0.01, min(lent.expires for lent in self._lent.values()) - now))

    def _release(self, lent: "_Lent") -> bool:
        return self._lent.pop(lent.token, None) is not None

    def _ack(self, lent: "_Lent") -> None:
        if self._release(lent):
            self._over(lent.line, lent.job.envelope.id, answered=lent.is_served)

    def _over(self, line: str, job_id: str, *, answered: bool) -> None:
        self._again.discard(job_id)
        self._crowds[line].over(job_id, self._clock(), answered=answered)

    def _give_back(self, lent: "_Lent") -> None:
        if not self._release(lent) or self._closed:
            return
        if lent.job.envelope.id not in self._inboxes:  # the asker left meanwhile
            self._over(lent.line, lent.job.envelope.id, answered=False)
            return
        self._again.add(lent.job.envelope.id)
        line = self._lines.setdefault(lent.line, Line())
        line.appendleft(lent.job, lent.size_class)
        self._announce(lent.line, line)

    def _deliver(self, chunk: Chunk, token: int) -> None:
        inbox = self._inboxes.get(chunk.job)
        if inbox is not None:
            inbox.answer.put(chunk, token)

    def _forget(self, job_id: str, *, cancelled: bool) -> None:
        if self._inboxes.pop(job_id, None) is None or not cancelled:
            return
        for name, line in list(self._lines.items()):
            if line.remove(job_id):
                self._over(name, job_id, answered=False)
                if line.idle:
                    del self._lines[name]
                return
        for listener in self._listeners:
            listener.cancelled(job_id)


class _Lent:
    """A `Delivery`."""

    __slots__ = ("_queue", "expires", "is_served", "job", "line", "size_class", "token")

    def __init__(
        self, queue: InProcessQueue, line: str, size_class: str, job: Job, token: int, expires: float
    ) -> None:
        self._queue, self.line, self.size_class = queue, line, size_class
        self.job, self.token, self.expires = job, token, expires
        self.is_served = False

    @property
    def is_again(self) -> bool:
        return self.job.envelope.id in self._queue._again

    def reply(self, chunk: Chunk) -> None:
        self.is_served = self.is_served or chunk.status < 300  # what is refused took no time
        self._queue._deliver(chunk, self.token)

    def ack(self) -> None:
        self._queue._ack(self)

    def extend(self) -> None:
        self.expires = self._queue._clock() + self._queue._limits.lease_s

    def give_back(self) -> None:
        self._queue._give_back(self)


class _Inbox:
    def __init__(self, queue: InProcessQueue, job_id: str) -> None:
        self._queue = queue
        self._job = job_id
        self.answer = Answer()

    async def next(self) -> Chunk:
        return await self.answer.next()

    def close(self) -> None:
        self._queue._forget(self._job, cancelled=not self.answer.complete)
