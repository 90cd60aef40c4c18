"""The short way out while a line is too long: thousands of refusals a second must not cost what answers need.

It says the same as the long way through `app`, from the same parts, but without a task, timers and an envelope. It
only refuses; whoever it has nothing to say to goes the long way, where everything is checked.
"""

import time
from collections.abc import Callable, Iterator, Sequence

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from shoal.catalog import Model
from shoal.dialects import Reply
from shoal.gateway import admission, routing
from shoal.gateway.access import Access
from shoal.gateway.accounts import log_access
from shoal.gateway.overview import Counts
from shoal.gateway.settings import GatewaySettings
from shoal.observe import metrics
from shoal.protocol.errors import ShoalError
from shoal.queue import Queue

FOR_S = 0.25
"""After the last refusal of a job for its wait. Nobody pays for this file while none is refused."""
MOST_BYTES = 64 * 1024
"""A larger body is not held back for it."""


class Early:
    def __init__(
        self,
        queue: Queue,
        resolve: Callable[[routing.Target, bytes], Model],
        settings: GatewaySettings,
        access: Access,
        ids: Iterator[str],
        counts: Counts,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._queue, self._resolve, self._settings, self._access = queue, resolve, settings, access
        self._ids, self._counts, self._clock = ids, counts, clock
        self._until = 0.0

    @property
    def is_on(self) -> bool:
        return self._until > 0 and self._clock() < self._until

    def begin(self) -> None:
        """A job was refused because its line is full: others will be."""
        self._until = self._clock() + FOR_S

    def reply(self, url: bytes, pairs: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes | None:
        """The whole answer to a POST that is refused for its wait; None for any other."""
        began = time.perf_counter()
        headers = admission.headers_of(pairs)
        try:
            self._access.check(headers)
            target = routing.find("POST", url.decode("ascii")).of(body)
            deadline = self._clock() + admission.timeout_of(headers, self._settings)
            line = self._resolve(target, body).line
            error = self._queue.refusal(line, admission.priority_of(headers), deadline)
        except (ShoalError, UnicodeDecodeError):
            return None
        if error is None:
            return None
        self.begin()
        reply = target.dialect.refuse(error, accept=headers.get(b"accept", b"").decode("latin-1"))
        request_id, seconds = next(self._ids), time.perf_counter() - began
        metrics.answered(target.route.name, reply.status, seconds)
        metrics.refused(error.code)
        self._counts.over(reply.status)
        if self._settings.access_log:
            size, path = len(reply.body), url.decode("ascii").partition("?")[0]
            log_access("POST", path, target.route.name, reply.status, size, request_id, seconds)
        return _wire(reply, request_id)


def _wire(reply: Reply, request_id: str) -> bytes:
    headers = (*reply.headers, ("x-request-id", request_id), ("content-length", str(len(reply.body))))
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    return STATUS_LINE[reply.status] + lines.encode("latin-1") + b"\r\n" + reply.body
