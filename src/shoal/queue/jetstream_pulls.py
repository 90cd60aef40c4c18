"""Pulling from the shared queue: raw requests for the next jobs of a line, parked at the server while it is empty.

At most one request stands for each priority of a line; a job's own subject tells which one it answers. A request
is one-shot (`no_wait` with `expires`): answered with what is there, or with the first that comes. It outlives the
pull that made it if that was cancelled; what it then brings goes to the next pull, or back.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable

import msgspec

from shoal.protocol import subjects
from shoal.protocol.envelope import Priority
from shoal.protocol.errors import QueueUnavailable, ShoalError
from shoal.queue import Limits
from shoal.queue.jetstream_api import IDLE_CONSUMER_S, Api
from shoal.queue.jetstream_held import Holdings, JetStreamDelivery
from shoal.queue.jetstream_link import Link

log = logging.getLogger("shoal.queue")
GATHER_S = 0.002
"""After its first job, how long a pull waits for the rest of a burst that is already on its way."""
LOOK_S = 2.0
"""How long a request that does not wait may take, server and network."""
UNWANTED_AFTER_S = 0.005
"""Jobs beyond what a pull asked for are the next one's, if it comes so soon; else another node may have them."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.001, 0.05
_ROOM_FOR_HEAD = 512
_encode = msgspec.json.Encoder().encode


class _Request:
    """One request at the server; `left` jobs may still come of it."""

    __slots__ = ("is_parked", "left", "line", "number", "priority")

    def __init__(self, number: int, line: "_Line", priority: Priority, jobs: int, *, is_parked: bool) -> None:
        self.number, self.line, self.priority, self.left = number, line, priority, jobs
        self.is_parked = is_parked


class _Line:
    """What one process knows of one line: its requests at the server, jobs that came, and who waits for them."""

    __slots__ = ("arrived", "batch_at", "known", "name", "pulls", "requests", "waiters", "wake_at")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pulls = 0  # now in progress
        self.requests: dict[Priority, _Request] = {}
        self.arrived: list[JetStreamDelivery] = []
        self.waiters: set[asyncio.Future[None]] = set()
        self.wake_at: asyncio.TimerHandle | None = None
        self.known: dict[Priority, float] = {}  # when its consumer was last seen to be there
        self.batch_at: float | None = None  # since when batch jobs wait for their turn; None where there are none

    def wake(self) -> None:
        if self.wake_at is not None:
            self.wake_at.cancel()
            self.wake_at = None
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)


class Pulls:
    def __init__(
        self, link: Link, api: Api, holdings: Holdings, limits: Limits, name: str, clock: Callable[[], float]
    ) -> None:
        self._link, self._api, self._holdings, self._limits, self._name = link, api, holdings, limits, name
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._requests: dict[int, _Request] = {}
        self._lines: dict[str, _Line] = {}
        self._closed = False
        self._is_ready = False
        self._subscription = link.subscribe(subjects.pulled(name, "*"), self._on_message)

    async def pull(self, name: str, max_jobs: int, max_bytes: int, wait_s: float) -> list[JetStreamDelivery]:
        """Interactive first, unless batch jobs have waited long; an empty list after `wait_s`."""
        line = self._lines.setdefault(name, _Line(name))
        line.pulls += 1
        try:
            await self._first(line, max_jobs, max_bytes, wait_s)
        finally:
            line.pulls -= 1
        return self._take(line, max_jobs, max_bytes)

    async def _first(self, line: _Line, max_jobs: int, max_bytes: int, wait_s: float) -> None:
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

    def has_parked(self, name: str) -> bool:
        """Whether the next job of a line comes here by itself."""
        line = self._lines.get(name)
        return line is not None and bool(line.waiters) and bool(line.requests)

    def has_request(self, name: str) -> bool:
        """Whether a request for its interactive jobs is ours, at the server."""
        line = self._lines.get(name)
        return line is not None and "interactive" in line.requests

    def note_batch(self, name: str) -> None:
        """There are batch jobs in this line: whoever waits on it waits for them too."""
        line = self._lines.setdefault(name, _Line(name))
        if line.batch_at is None:
            line.batch_at = self._clock()
        if "batch" not in line.requests:
            line.wake()

    def no_batch_but(self, names: set[str]) -> None:
        for name, line in list(self._lines.items()):
            if name not in names and "batch" not in line.requests:
                line.batch_at = None
            if not (line.pulls or line.requests or line.arrived or line.batch_at is not None):
                self._forget_idle(name, line)

    def link_down(self) -> None:
        """Requests at a server that is gone bring nothing."""
        self._is_ready = False
        self._requests.clear()
        for line in self._lines.values():
            line.requests.clear()
            line.known.clear()
            line.wake()

    def link_up(self) -> None:
        self._is_ready = True

    def close(self) -> None:
        self._closed = True
        for line in self._lines.values():
            line.wake()

    async def withdraw(self) -> None:
        """Nothing more comes; what is on its way here goes back when it arrives."""
        self._requests.clear()
        await self._link.unsubscribe(self._subscription)

    def _take(self, line: _Line, max_jobs: int, max_bytes: int) -> list[JetStreamDelivery]:
        """What arrived, within the bounds of this pull; the rest is the next one's."""
        size, count = 0, 0
        for delivery in line.arrived[:max_jobs]:
            size += len(delivery.job.body)
            if count and size > max_bytes:
                break
            count += 1
        taken, line.arrived = line.arrived[:count], line.arrived[count:]
        for delivery in line.arrived:
            self._loop.call_later(UNWANTED_AFTER_S, self._unwanted, line, delivery)
        return taken

    def _forget_idle(self, name: str, line: _Line) -> None:
        now = self._loop.time()
        if all(now - seen > IDLE_CONSUMER_S for seen in line.known.values()):
            del self._lines[name]

    # Asking.

    async def _ask(self, line: _Line, max_jobs: int, max_bytes: int, wait_s: float) -> None:
        """Returns once something arrived, or every request has ended, or something changed."""
        if line.batch_at is None:
            await self._request(line, "interactive", max_jobs, max_bytes, wait_s)
            standing = line.requests.get("interactive")
            if line.batch_at is None and (wait_s or (standing and not standing.is_parked)):
                await self._wait(line, wait_s)  # one that is parked has found nothing
            return
        first, second = self._order(line)
        for priority in (first, second):
            if priority not in line.requests:
                await self._request(line, priority, max_jobs - len(line.arrived), max_bytes, 0.0)
                await self._wait(line, 0.0)
            if len(line.arrived) >= max_jobs:
                return
        if line.arrived or not wait_s:
            return
        await self._request(line, first, max_jobs, max_bytes, wait_s)
        await self._request(line, second, max_jobs, max_bytes, wait_s)
        await self._wait(line, wait_s)

    def _order(self, line: _Line) -> tuple[Priority, Priority]:
        assert line.batch_at is not None
        now = self._clock()
        if now - line.batch_at < self._limits.promote_after_s:
            return "interactive", "batch"
        line.batch_at = now
        return "batch", "interactive"

    async def _request(self, line: _Line, priority: Priority, jobs: int, size: int, wait_s: float) -> None:
        """Ask for jobs, unless such a request is still parked. A `size` of 0 is no limit."""
        if priority in line.requests:
            return
        if not self._is_ready:
            raise QueueUnavailable("the queue server cannot be reached")
        now = self._loop.time()
        if now - line.known.get(priority, -IDLE_CONSUMER_S) > IDLE_CONSUMER_S / 2:
            await self._api.ensure_consumer(line.name, priority)
        line.known[priority] = now
        request = _Request(next(self._numbers), line, priority, jobs, is_parked=wait_s > 0)
        self._requests[request.number] = line.requests[priority] = request
        body: dict[str, object] = {"batch": jobs, "no_wait": True}
        if size:
            body["max_bytes"] = size + jobs * _ROOM_FOR_HEAD
        if wait_s:
            body["expires"] = int(wait_s * 1e9)
        subject = self._api.next_subject(line.name, priority)
        self._link.publish(subject, _encode(body), subjects.pulled(self._name, request.number))

    async def _wait(self, line: _Line, wait_s: float) -> None:
        """Until woken: a request was filled or ended, GATHER_S passed since the first job, or all too long."""
        if not line.requests or (wait_s and line.arrived):
            return
        waiter = self._loop.create_future()
        line.waiters.add(waiter)
        try:
            async with asyncio.timeout(wait_s + LOOK_S):
                await waiter
        except TimeoutError:
            for request in line.requests.values():
                self._requests.pop(request.number, None)
            line.requests.clear()
            line.known.clear()
        finally:
            line.waiters.discard(waiter)

    # Hearing.

    def _on_message(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        """A job comes under the subject it was published on, a status under that of the request."""
        if reply:
            self._on_job(subject.decode(), reply.decode(), payload)
            return
        request = self._requests.get(int(subject[subject.rfind(b".") + 1 :]))
        if request is not None:
            self._on_status(request, headers)

    def _on_job(self, subject: str, ack_subject: str, payload: bytes) -> None:
        name = subjects.line_of(subject)
        delivery = self._holdings.take(name, payload, ack_subject)
        line = self._lines.setdefault(name, _Line(name))
        if delivery is not None:
            line.arrived.append(delivery)
        request = line.requests.get(subjects.priority_of(subject))
        if request is not None:
            request.left -= 1
            if not request.left:
                self._end(request)
        if not line.waiters:
            self._loop.call_later(UNWANTED_AFTER_S, self._unwanted, line, delivery)
        elif request is None or not request.left:
            line.wake()
        elif line.wake_at is None and line.arrived:
            line.wake_at = self._loop.call_later(GATHER_S, line.wake)

    def _on_status(self, request: _Request, headers: bytes) -> None:
        """404 nothing there, 408 over, 409 too large for the limit, or the consumer is gone; 503 no consumer."""
        self._end(request)
        status = headers[9:12]
        if b"MaxBytes" in headers and not request.line.arrived:
            task = self._loop.create_task(self._request(request.line, request.priority, 1, 0, 0.0))
            task.add_done_callback(_look_at)
            return
        if status not in (b"404", b"408"):
            request.line.known.pop(request.priority, None)
        if not request.line.requests or request.line.arrived:
            request.line.wake()

    def _end(self, request: _Request) -> None:
        self._requests.pop(request.number, None)
        if request.line.requests.get(request.priority) is request:
            del request.line.requests[request.priority]

    def _unwanted(self, line: _Line, delivery: JetStreamDelivery | None) -> None:
        """Came after its pull was cancelled, and no other pull took it."""
        if delivery is not None and delivery in line.arrived:
            line.arrived.remove(delivery)
            delivery.give_back()


def _look_at(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("a pull failed: %s", error)
