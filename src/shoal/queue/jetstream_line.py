"""What one process knows of one line of the shared queue: its requests at the server, what came of them, who
waits, and which of its priorities and classes are asked first. State and no I/O.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence

from shoal.protocol.envelope import Priority
from shoal.queue import PROMOTED_EVERY
from shoal.queue.classes import ALONE, CLASSES, Served
from shoal.queue.jetstream_held import JetStreamDelivery

Source = tuple[Priority, str]
"""One consumer of a line: a priority and a class."""
HEAD_BYTES, BODY_BYTES = 512.0, 256.0
"""Of a job, before one was seen: what it has besides its body, and its body."""
SPARE = 0.85
TRIES = 3
"""So many classes are asked one after another before all are at once: alike in length is worth a round trip."""
_LEARN = 0.05


class Request:
    """One request at the server; `left` jobs may still come of it, until about `until` at the latest."""

    __slots__ = ("brought", "is_over", "is_parked", "left", "line", "number", "source", "until")

    def __init__(
        self, number: int, line: "Line", source: Source, jobs: int, *, is_parked: bool, until: float
    ) -> None:
        self.number, self.line, self.source, self.left = number, line, source, jobs
        self.is_parked, self.until = is_parked, until
        self.brought = 0
        self.is_over = False


class Line:
    def __init__(self, name: str) -> None:
        self.name = name
        self.pulls = 0  # now in progress
        self.requests: dict[Source, Request] = {}
        self.arrived: list[JetStreamDelivery] = []
        self.came_at = 0.0  # when the last of them did
        self.waiters: dict[asyncio.Future[None], Sequence[Request]] = {}
        self.known: dict[Source, float] = {}  # when its consumer was last seen to be there
        self.batch_at: float | None = None  # since when its oldest batch job has waited; None where there is none
        self.classed_at: float | None = None  # when jobs of classes were last seen; None where there are none
        self.served: dict[Priority, Served] = {"interactive": Served(), "batch": Served()}
        self.untold: set[Source] = set()
        self.heard = 0  # what others told since we last did
        self.heard_at = -math.inf  # when they last did
        self.last_ack = ""  # that of the job which last came
        self.subscription = 0
        self._turns = 0
        self._head_bytes = HEAD_BYTES
        self._body_bytes: dict[Source, float] = {}

    @property
    def is_plain(self) -> bool:
        return self.batch_at is None and self.classed_at is None

    @property
    def sources(self) -> list[Source]:
        """All that its jobs may come from."""
        priorities: list[Priority] = ["interactive"] if self.batch_at is None else ["interactive", "batch"]
        return [(priority, each) for priority in priorities for each in self.classes]

    @property
    def classes(self) -> Sequence[str]:
        return CLASSES if self.classed_at is not None else CLASSES[:1]

    def order(self, now: float, promote_after_s: float) -> list[Priority]:
        """Interactive first; where batch jobs have waited long, they have one turn in PROMOTED_EVERY."""
        if self.batch_at is None:
            return ["interactive"]
        if now - self.batch_at >= promote_after_s:
            self._turns += 1
            if self._turns % PROMOTED_EVERY == 1:
                return ["batch", "interactive"]
        return ["interactive", "batch"]

    def first_of(self, priority: Priority, tried: Sequence[Source] = ()) -> Source | None:
        """Where its jobs are likely to have waited longest, and whether that is worth to be asked alone."""
        size_class = "" if self.classed_at is None else self.served[priority].next()
        if size_class is None or len(tried) >= TRIES or (priority, size_class) in tried:
            return None
        return priority, size_class

    def has_enough(self, max_jobs: int, max_bytes: int) -> bool:
        """Whether what came is worth a batch. Jobs of a line without classes fill one whatever their priority."""
        if len(self.arrived) >= max_jobs:
            return True
        came = sum(len(delivery.job.body) for delivery in self.arrived)
        return self.classed_at is not None and came >= ALONE * max_bytes

    def rest(self, max_jobs: int, max_bytes: int) -> tuple[int, int]:
        """Jobs and bytes that are wanted yet."""
        came = sum(len(delivery.job.body) for delivery in self.arrived)
        return max(1, max_jobs - len(self.arrived)), max(1, max_bytes - came)

    def share(self, max_jobs: int, max_bytes: int) -> tuple[int, int]:
        """What each class is asked for where all are: equal parts of what is wanted yet."""
        if self.classed_at is None:
            return max_jobs, max_bytes
        jobs, size = self.rest(max_jobs, max_bytes)
        return max(1, jobs // len(CLASSES)), max(1, size // len(CLASSES))

    def room(self, source: Source, max_jobs: int, max_bytes: int) -> int:
        """Bytes, as the server counts them, of jobs with rather less than `max_bytes` of bodies: what is too much
        has to go back."""
        body = self._body_bytes.get(source, BODY_BYTES)
        return int(max_bytes + min(max_jobs, SPARE * max_bytes / body + 1) * self._head_bytes)

    def came(self, source: Source, delivery: JetStreamDelivery, size_bytes: int) -> None:
        """A job of so many bytes, as the server counts them."""
        body = len(delivery.job.body)
        mean = self._body_bytes.get(source, float(body or 1))
        self._body_bytes[source] = mean + _LEARN * (body - mean)
        self._head_bytes += _LEARN * (size_bytes - body - self._head_bytes)
        self.arrived.append(delivery)
        if source[0] == "batch" and self.batch_at is not None:
            self.batch_at = max(self.batch_at, delivery.job.envelope.received)

    def is_empty_at(self, source: Source, now: float) -> None:
        """The server has no job of this source; it may have some lent."""
        if source[0] == "batch" and self.batch_at is not None:
            self.batch_at = now
        if self.classed_at is not None:
            self.served[source[0]].found_empty(source[1])
            self.untold.add(source)

    def look(self) -> None:
        """Wake who waits for requests that have ended, or for the first job of any that are parked."""
        for waiter, requests in self.waiters.items():
            if not waiter.done() and _is_served(requests):
                waiter.set_result(None)

    def wake(self) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)

    def forget_classes(self) -> None:
        self.classed_at = None
        self.forget_served()

    def forget_served(self) -> None:
        """The stream is another: its places begin anew."""
        self.served = {"interactive": Served(), "batch": Served()}
        self.untold.clear()
        self.last_ack = ""


class Lines:
    """Those that this process pulls from, by name. `now` is the time that envelopes are stamped with."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._lines: dict[str, Line] = {}

    def of(self, name: str) -> Line:
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(name)
        return line

    def get(self, name: str) -> Line | None:
        return self._lines.get(name)

    def all(self) -> list[Line]:
        return list(self._lines.values())

    def forget(self, line: Line) -> None:
        del self._lines[line.name]


def _is_served(requests: Iterable[Request]) -> bool:
    return all(request.is_over for request in requests) or any(
        request.is_parked and request.is_over and request.brought for request in requests
    )
