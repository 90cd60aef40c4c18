"""What is told of one request to those who asked for it: a line in the log, a span in a trace.

Where nobody asked, none of this is on a request's way.
"""

import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from shoal.gateway.admission import Headers
from shoal.gateway.asgi import Receive, Scope, Send
from shoal.gateway.routing import Target
from shoal.gateway.waiting import Leaving
from shoal.observe import log as logs
from shoal.observe import traces

log = logging.getLogger("shoal.access")
Compute = Callable[[Target, Headers, Leaving, Receive, Send], Awaitable[int]]


class Account:
    """Stands before `send` and takes down what goes by. `headers` are added to the answer."""

    def __init__(self, send: Send, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        self._send, self._headers = send, headers
        self.request_id = ""
        self.size = 0

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *self._headers]
            ids = [value for name, value in message["headers"] if name == b"x-request-id"]
            self.request_id = ids[0].decode("latin-1") if ids else ""
        self.size += len(message.get("body", b""))
        await self._send(message)


def log_access(
    method: str, path: str, route: str, status: int, size: int, request_id: str, seconds: float
) -> None:
    """One line for one answer: `size` in bytes, "" as the id of what was no request to compute."""
    log.info(
        "answered",
        extra=logs.fields(
            request=request_id or "-", method=method, path=path, route=route, status=status, bytes=size,
            milliseconds=round(seconds * 1e3, 3),
        ),
    )  # fmt: skip


async def logged(
    serve: Callable[[Scope, Receive, Send], Awaitable[tuple[str, int]]], scope: Scope, receive: Receive, send: Send
) -> tuple[str, int]:
    """`serve`, and a line about it."""
    began, account = time.perf_counter(), Account(send)
    route, status = await serve(scope, receive, account)
    seconds = time.perf_counter() - began
    path = scope["raw_path"].decode("latin-1")  # as it came, without what could break the line
    log_access(scope["method"], path, route, status, account.size, account.request_id, seconds)
    return route, status


async def traced(
    compute: Compute, target: Target, headers: Headers, leaving: Leaving, receive: Receive, send: Send
) -> int:
    """`compute` within a span of the client's trace, or of a new one. Who works for the request goes on from it,
    and the answer names it as https://www.w3.org/TR/trace-context-2/ says.
    """
    parent = headers.get(b"traceparent", b"").decode("latin-1")
    route = target.route
    facts = {"http.request.method": route.method, "http.route": route.path, "shoal.task": route.task}
    span = traces.begin(f"{route.method} {route.path}", parent, facts, is_server=True)
    context = span.traceparent.encode("ascii")
    account = Account(send, ((b"traceresponse", context),))
    status = 500
    try:
        status = await compute(target, {**headers, b"traceparent": context}, leaving, receive, account)
        return status
    finally:
        ended: traces.Facts = {
            "http.response.status_code": status,
            "shoal.request": account.request_id,
            "shoal.bytes": account.size,
        }
        span.end(ended, failure=str(status) if status >= 500 else "")
