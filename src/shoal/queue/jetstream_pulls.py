"""Pulling from the shared queue: which of a line's priorities and classes are asked, and in which order.

What is asked is parked at the server while there is nothing. A request for a line without classes outlives the
pull that made it if that was cancelled; what it then brings goes to the next pull, or back.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping

from shoal.protocol.errors import ShoalError
from shoal.queue import Limits
from shoal.queue.jetstream_api import IDLE_CONSUMER_S, Api
from shoal.queue.jetstream_held import Holdings, JetStreamDelivery, place_of
from shoal.queue.jetstream_line import Line, Lines, Source
from shoal.queue.jetstream_link import Link
from shoal.queue.jetstream_requests import UNWANTED_AFTER_S, Requests
from shoal.queue.jetstream_served import ServedTelling

FIRST_PAUSE_S, LAST_PAUSE_S = 0.001, 0.05
_USUAL: Source = "interactive", ""


class Pulls:
    def __init__(
        self,
        link: Link,
        api: Api,
        holdings: Holdings,
        pool: str,
        limits: Limits,
        name: str,
        clock: Callable[[], float],
    ) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._lines = Lines(clock)
        self._requests = Requests(link, api, holdings, name, self._lines)
        self._served = ServedTelling(link, pool, name, self._lines)
        self._closed = False

    async def pull(self, name: str, max_jobs: int, max_bytes: int, wait_s: float) -> list[JetStreamDelivery]:
        """Interactive first, unless batch jobs have waited long; an empty list after `wait_s`."""
        line = self._lines.of(name)
        line.pulls += 1
        try:
            await self._first(line, max_jobs, max_bytes, wait_s)
        finally:
            line.pulls -= 1
        self._served.tell(line)
        return self._take(line, max_jobs, max_bytes)

    async def _first(self, line: Line, max_jobs: int, max_bytes: int, wait_s: float) -> None:
        """Until something arrived, or `wait_s` is over."""
        until = self._loop.time() + wait_s
        pause = FIRST_PAUSE_S
        while not self._closed and not line.arrived:
            rest = max(0.0, until - self._loop.time())
            with contextlib.suppress(ShoalError):  # the server is away; it comes back or the wait ends
                await self._ask(line, max_jobs, max_bytes, rest)
            if line.arrived or self._loop.time() >= until:
                break
            await asyncio.sleep(min(pause, rest))  # the server said no at once; it may again
            pause = min(LAST_PAUSE_S, 2 * pause)

    async def _ask(self, line: Line, max_jobs: int, max_bytes: int, wait_s: float) -> None:
        """Returns once something arrived, or every request has ended, or something changed.

        1. A line without batch jobs and classes: one request, parked where there is nothing.
        2. Else each priority in its turn: first the class that has waited longest, and where that brought little,
           the next ones; at last all its classes an equal share each.
        3. Nothing there: parked on everything.
        """
        ask = self._requests
        if line.is_plain:  # 1
            request = await ask.ask(line, _USUAL, max_jobs, max_bytes, wait_s)
            if line.is_plain:
                await ask.wait(line, [request], wait_s)
            return
        order = line.order(self._lines.now(), self._limits.promote_after_s)
        for priority in order:  # 2
            tried: list[Source] = []
            while (first := line.first_of(priority, tried)) is not None:
                tried.append(first)
                await ask.wait(line, [await ask.ask(line, first, *line.rest(max_jobs, max_bytes), 0.0)], 0.0)
                if line.has_enough(max_jobs, max_bytes):
                    return
            if line.classed_at is not None and (line.arrived or len(order) > 1 or not wait_s):
                sources = [(priority, each) for each in line.classes]
                await ask.ask_all(line, sources, *line.share(max_jobs, max_bytes), 0.0)
                if line.has_enough(max_jobs, max_bytes):
                    return
        if wait_s and not line.arrived:  # 3
            await ask.ask_all(line, line.sources, *line.share(max_jobs, max_bytes), wait_s)

    def has_parked(self, name: str) -> bool:
        """Whether the next job of a line comes here by itself."""
        line = self._lines.get(name)
        return line is not None and bool(line.waiters) and bool(line.requests)

    def has_request(self, name: str) -> bool:
        """Whether a request for its interactive jobs is ours, at the server."""
        line = self._lines.get(name)
        return line is not None and _USUAL in line.requests

    def last_place(self, name: str) -> tuple[int, int]:
        """In the stream, of the job of a line that last came here, and how many were left; 0 where none did."""
        line = self._lines.get(name)
        return place_of(line.last_ack) if line is not None and line.last_ack else (0, 0)

    def least_served(self, name: str) -> int | None:
        """How far the class of a line was served that was served least far; None for a line without classes."""
        line = self._lines.get(name)
        return None if line is None or line.classed_at is None else line.served["interactive"].least

    @property
    def is_closed(self) -> bool:
        return self._closed

    def heard_s(self, name: str) -> float:
        """How long ago another node last told what it took of a line of classes."""
        line = self._lines.get(name)
        return self._loop.time() - line.heard_at if line is not None else math.inf

    def note(self, name: str, source: Source) -> None:
        """There are jobs of this priority and class: whoever waits on the line waits for them too."""
        line = self._lines.of(name)
        is_news = False
        if source[1]:
            if line.classed_at is None:
                self._served.follow(line)
                is_news = True
            line.classed_at = self._loop.time()
        if source[0] == "batch" and line.batch_at is None:
            line.batch_at = self._lines.now()
            is_news = True
        if is_news and source not in line.requests:
            line.wake()

    def seen(self, found: Mapping[str, set[Source]]) -> None:
        """What the server holds of each line now."""
        for name, sources in found.items():
            for source in sources - {_USUAL}:
                self.note(name, source)
        now = self._loop.time()
        for line in self._lines.all():
            held = found.get(line.name, set())
            if ("batch", "") not in line.requests and not any(priority == "batch" for priority, _ in held):
                line.batch_at = None
            if line.classed_at is not None and now - line.classed_at > IDLE_CONSUMER_S:
                line.forget_classes()
                self._served.leave(line)
            if not (line.pulls or line.requests or line.arrived or not line.is_plain):
                self._forget_idle(line, now)

    def link_down(self) -> None:
        self._requests.link_down()
        for line in self._lines.all():
            line.known.clear()
            line.wake()

    def link_up(self, era: str) -> None:
        """`era` is when the stream was made."""
        self._served.begin(era)
        self._requests.link_up()

    def close(self) -> None:
        self._closed = True
        for line in self._lines.all():
            line.wake()

    async def withdraw(self) -> None:
        await self._requests.withdraw()
        await self._served.close()

    def _take(self, line: Line, max_jobs: int, max_bytes: int) -> list[JetStreamDelivery]:
        """What arrived, within the bounds of this pull; the rest is the next one's."""
        size, count = 0, 0
        for delivery in line.arrived[:max_jobs]:
            size += len(delivery.job.body)
            if count and size > max_bytes:
                break
            count += 1
        taken, line.arrived = line.arrived[:count], line.arrived[count:]
        for delivery in line.arrived:
            self._loop.call_later(UNWANTED_AFTER_S, self._requests.unwanted, line, delivery)
        return taken

    def _forget_idle(self, line: Line, now: float) -> None:
        if all(now - seen > IDLE_CONSUMER_S for seen in line.known.values()):
            self._lines.forget(line)
