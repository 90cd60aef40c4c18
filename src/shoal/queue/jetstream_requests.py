"""Requests for jobs at the queue server: made, parked, taken back, and what comes of them put into their lines.

At most one request stands for each priority and class of a line; a job's own subject tells which one it answers. A
request is one-shot (`no_wait` with `expires`): answered with what is there, or with the first that comes, and
ended by a status unless it was filled.
"""

import asyncio
import itertools
from collections.abc import Sequence

import msgspec

from shoal.protocol import subjects
from shoal.protocol.errors import QueueUnavailable
from shoal.queue.jetstream_api import IDLE_CONSUMER_S, Api
from shoal.queue.jetstream_held import Holdings, JetStreamDelivery, place_of
from shoal.queue.jetstream_line import Line, Lines, Request, Source
from shoal.queue.jetstream_link import Link

LOOK_S = 2.0
"""How long a request that does not wait may take, server and network."""
QUIET_S = 0.02
"""What a request brings that does not wait comes in one go."""
PARKED_S = 4.0
"""The longest that a request for one class of a line is parked: by then this node may have enough to do."""
OVERDUE_S = 0.1
"""A parked request that has not ended so long after its time has: the server may leave out to say so."""
UNWANTED_AFTER_S = 0.005
"""Jobs beyond what a pull asked for are the next one's, if it comes so soon; else another node may have them."""
_encode = msgspec.json.Encoder().encode


class Requests:
    def __init__(self, link: Link, api: Api, holdings: Holdings, name: str, lines: Lines) -> None:
        self._link, self._api, self._holdings, self._name, self._lines = link, api, holdings, name, lines
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._open: dict[int, Request] = {}
        self._is_ready = False
        self._subscription = link.subscribe(subjects.pulled(name, "*"), self._on_message)

    def link_down(self) -> None:
        """Requests at a server that is gone bring nothing."""
        self._is_ready = False
        for request in list(self._open.values()):
            self._end(request)

    def link_up(self) -> None:
        self._is_ready = True

    async def withdraw(self) -> None:
        """Nothing more comes; what is on its way here goes back when it arrives."""
        self._open.clear()
        await self._link.unsubscribe(self._subscription)

    async def ask_all(self, line: Line, sources: Sequence[Source], jobs: int, size: int, wait_s: float) -> None:
        """One of those that are parked was answered: the others stay until they bring a job each, which goes back
        unless the next pull comes in a moment, or until they are over, soon. Taken back they would lose what the
        server was about to send: it looks for who listens first, and such jobs were gone until their leases ran
        out. Raises QueueUnavailable."""
        wait_s = min(wait_s, PARKED_S) if line.classed_at is not None else wait_s
        asking = (self.ask(line, source, jobs, size, wait_s) for source in sources)
        asked = await asyncio.gather(*asking, return_exceptions=True)
        await self.wait(line, [_given(request) for request in asked], wait_s)

    async def ask(self, line: Line, source: Source, jobs: int, size: int, wait_s: float) -> Request:
        """Ask for jobs, unless such a request is still parked: then there are none. Raises QueueUnavailable."""
        now = self._loop.time()
        standing = line.requests.get(source)
        if standing is not None and now < standing.until:
            if not standing.brought:
                line.is_empty_at(source, self._lines.now())
            return standing
        if not self._is_ready:
            raise QueueUnavailable("the queue server cannot be reached")
        if now - line.known.get(source, -IDLE_CONSUMER_S) > IDLE_CONSUMER_S / 2:
            await self._api.ensure_consumer(line.name, *source)
        line.known[source] = now
        if standing is not None:
            self._end(standing)
        until = now + (wait_s + OVERDUE_S if wait_s else LOOK_S)
        request = Request(next(self._numbers), line, source, jobs, is_parked=wait_s > 0, until=until)
        self._open[request.number] = line.requests[source] = request
        self._publish(request, line.room(source, jobs, size), wait_s)
        return request

    def _publish(self, request: Request, size: int, wait_s: float) -> None:
        """A `size` of 0 is no limit."""
        body: dict[str, object] = {"batch": request.left, "no_wait": True}
        if size:
            body["max_bytes"] = size
        if wait_s:
            body["expires"] = int(wait_s * 1e9)
        subject = self._api.next_subject(request.line.name, *request.source)
        self._link.publish(subject, _encode(body), subjects.pulled(self._name, request.number))

    async def wait(self, line: Line, requests: Sequence[Request], wait_s: float) -> None:
        """Until woken: all have ended, or of those that are parked one has brought something, or all too long.
        Without `wait_s` what was parked before has found nothing."""
        if not wait_s:
            requests = [request for request in requests if not request.is_parked]
        if all(request.is_over for request in requests) or (wait_s and line.arrived):
            return
        waiter = self._loop.create_future()
        line.waiters[waiter] = requests
        began = self._loop.time()
        try:
            while not waiter.done():
                until = max(began, line.came_at) + QUIET_S if line.arrived else began + wait_s + LOOK_S
                if (rest := until - self._loop.time()) <= 0:
                    self._give_up(line, requests)
                    return
                await asyncio.wait([waiter], timeout=rest)
        finally:
            del line.waiters[waiter]

    def _give_up(self, line: Line, requests: Sequence[Request]) -> None:
        """1. Where something came, the server has left out to say that this is all, as it may where requests of
        others are parked before ours. 2. Else perhaps there is no such consumer any more."""
        for request in requests:
            self._end(request)  # 1
        if not line.arrived:
            line.known.clear()  # 2

    def _on_message(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        """A job comes under the subject it was published on, a status under that of the request."""
        if reply:
            self._on_job(subject.decode(), reply.decode(), payload)
            return
        request = self._open.get(int(subject[subject.rfind(b".") + 1 :]))
        if request is not None:
            self._on_status(request, headers)

    def _on_job(self, subject: str, ack_subject: str, payload: bytes) -> None:
        name = subjects.line_of(subject)
        source: Source = subjects.priority_of(subject), subjects.class_of(subject)
        delivery = self._holdings.take(name, payload, ack_subject)
        line = self._lines.of(name)
        line.last_ack = ack_subject
        if delivery is not None:
            line.came(source, delivery, len(subject) + len(ack_subject) + len(payload))
            line.came_at = self._loop.time()
        if line.classed_at is not None and line.pulls:  # else it will go back, and its class is not served by that
            line.served[source[0]].took(source[1], *place_of(ack_subject))
            line.untold.add(source)
        request = line.requests.get(source)
        if request is not None:
            request.left -= 1
            request.brought += 1
            request.until = min(request.until, self._loop.time() + QUIET_S)  # the rest of it comes at once
            if not request.left:
                self._end(request)
        if line.pulls:
            line.look()
        else:
            self._loop.call_later(UNWANTED_AFTER_S, self.unwanted, line, delivery)

    def _on_status(self, request: Request, headers: bytes) -> None:
        """404 nothing (more) there, 408 over, 409 too large for the limit, or the consumer is gone; 503 none."""
        line = request.line
        is_too_large = b"MaxBytes" in headers
        if is_too_large and not line.arrived:
            request.left = 1
            self._publish(request, 0, 0.0)
            return
        self._end(request)
        if headers[9:12] in (b"404", b"408"):
            line.is_empty_at(request.source, self._lines.now())
        elif not is_too_large:
            line.known.pop(request.source, None)
        line.look()

    def _end(self, request: Request) -> None:
        request.is_over = True
        self._open.pop(request.number, None)
        if request.line.requests.get(request.source) is request:
            del request.line.requests[request.source]

    def unwanted(self, line: Line, delivery: JetStreamDelivery | None) -> None:
        """Came after its pull had ended, and no other pull took it."""
        if delivery is not None and delivery in line.arrived:
            line.arrived.remove(delivery)
            delivery.give_back()


def _given(request: Request | BaseException) -> Request:
    if isinstance(request, BaseException):
        raise request
    return request
