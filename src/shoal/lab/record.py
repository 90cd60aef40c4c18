"""What a load writes down while it runs, and the run that it becomes."""

import time
from collections.abc import Sequence

from shoal.lab.connection import Connection
from shoal.lab.run import UNANSWERED, Answer, Request, Run, quantile


class Record:
    """Answers as they come. The window that counts is [`since`, `until`] on the clock of time.perf_counter."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = requests
        self.since = self.until = float("inf")
        self.pending = 0
        """Requests that began in the window and wait for their answer."""
        self.reopened = 0
        self.late: list[float] = []
        self._answers: list[Answer] = []
        self._complaint = ""

    def open(self, since: float, seconds: float) -> None:
        self.since, self.until = since, since + seconds

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

    def _end(self, began: float) -> None:
        if self.since <= began <= self.until:
            self.pending -= 1

    def finish(self, waiting: Sequence[tuple[int, float]]) -> Run:
        """`waiting` are requests, (place, began), that were still unanswered when patience ended."""
        now = time.perf_counter()
        for place, began in waiting:
            self.fail(place, began, now, UNANSWERED)
        return Run(
            self.until - self.since,
            self._answers,
            late_s=quantile(sorted(self.late), 0.99) if self.late else 0.0,
            reopened=self.reopened,
            complaint=self._complaint,
        )
