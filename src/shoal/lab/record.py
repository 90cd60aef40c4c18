"""What a load writes down while it runs, and the run that it becomes."""

import asyncio
import time
from collections.abc import Callable, Sequence

from shoal.lab.connection import Connection
from shoal.lab.run import UNANSWERED, Answer, Request, Run, quantile

TICK_S = 0.05


class Record:
    """Answers as they come. The window that counts is [`since`, `until`] on the clock of time.perf_counter."""

    def __init__(self, requests: Sequence[Request], watch: Callable[[], float] | None = None) -> None:
        """`watch` tells the processor seconds so far of whoever is watched; asked at both ends of the window."""
        self._requests = requests
        self._watch = watch or (lambda: 0.0)
        self._marks: list[tuple[float, float]] = []
        self.since = self.until = float("inf")
        self.pending = 0
        """Requests that began in the window and wait for their answer."""
        self.reopened = 0
        self.late: list[float] = []
        self._answers: list[Answer] = []
        self._complaint = ""
        self._stalled_s = 0.0
        self._rested_s = 0.0

    def open(self, since: float, seconds: float) -> None:
        """The window, on an event loop that is running."""
        self.since, self.until = since, since + seconds
        loop, now = asyncio.get_running_loop(), time.perf_counter()
        for at in (self.since, self.until):
            loop.call_later(at - now, self._mark)
        self._tick(self.since)

    def _tick(self, due: float) -> None:
        """Sees whether the event loop comes around when it should; it does not if the machine stands still."""
        now = time.perf_counter()
        self._stalled_s = max(self._stalled_s, now - due)
        if now < self.until:
            due = max(now, self.since) + TICK_S
            asyncio.get_running_loop().call_later(due - now, self._tick, due)

    def _mark(self) -> None:
        self._marks.append((self._watch(), time.process_time()))

    def begin(self, began: float) -> None:
        if self.since <= began <= self.until:
            self.pending += 1

    def answer(self, connection: Connection, place: int, began: float, now: float) -> None:
        self._end(began)
        if now < self.since or began > self.until:
            return
        reader, request = connection.reader, self._requests[place]
        events = reader.events
        if reader.refusal and not self._complaint:
            self._complaint = reader.refusal.decode("utf-8", "replace")
        self._answers.append(
            Answer(
                began - self.since,
                now - began,
                reader.status,
                request.items,
                request.tokens,
                first_s=events.first - began if events is not None and events.first else 0.0,
                made=events.made if events is not None else 0,
                retry_after_s=reader.retry_after_s,
            )
        )

    def fail(self, place: int, began: float, now: float, fault: str) -> None:
        self._end(began)
        if now < self.since or began > self.until:
            return
        request = self._requests[place]
        self._answers.append(Answer(began - self.since, now - began, 0, request.items, request.tokens, fault))

    def rest(self, now: float, seconds: float) -> None:
        """A connection that will send nothing for so long, because a refusal asked for that."""
        self._rested_s += max(0.0, min(now + seconds, self.until) - max(now, self.since))

    def _end(self, began: float) -> None:
        if self.since <= began <= self.until:
            self.pending -= 1

    def finish(self, waiting: Sequence[tuple[int, float]]) -> Run:
        """`waiting` are requests, (place, began), that were still unanswered when patience ended."""
        now = time.perf_counter()
        if len(self._marks) < 2:  # the load ended with its window
            self._mark()
        (cpu, own), (cpu_after, own_after) = self._marks[0], self._marks[-1]
        for place, began in waiting:
            self.fail(place, began, now, UNANSWERED)
        return Run(
            self.until - self.since,
            self._answers,
            late_s=quantile(sorted(self.late), 0.99) if self.late else 0.0,
            stalled_s=self._stalled_s,
            rested_s=self._rested_s,
            reopened=self.reopened,
            cpu_s=cpu_after - cpu,
            own_cpu_s=own_after - own,
            complaint=self._complaint,
        )
