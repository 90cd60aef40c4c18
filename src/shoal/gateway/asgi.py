"""The few ASGI shapes we use, and the two things done with them: reading a body, sending a reply."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from shoal.dialects import Reply
from shoal.gateway.admission import Headers, check_size, declared_size
from shoal.gateway.settings import GatewaySettings
from shoal.protocol.errors import Cancelled, ResourceExhausted, over_limit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
LEAVING = "shoal.leaving"
"""In the scope's state, by our own server: what is to be called when the connection is lost."""
DISCARD_FOR_S = 5.0
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class BodyBudget:
    """Bytes of bodies that are held for requests in flight, all together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0

    def take(self, size: int) -> None:
        """Raises ResourceExhausted where the sum would pass the limit; what was taken stays taken."""
        self._held += size
        if self._held > self._limit:
            raise over_limit(
                ResourceExhausted, "the bodies of all requests in flight", seen=self._held, limit=self._limit,
                setting="--max-in-flight-bytes", unit="bytes",
            )  # fmt: skip

    def give(self, size: int) -> None:
        self._held -= size


class Body:
    """A request's body as it comes in. `size` counts what came; `is_whole` once its end has been seen."""

    def __init__(self, receive: Receive, settings: GatewaySettings, budget: BodyBudget) -> None:
        self._receive, self._settings, self._budget = receive, settings, budget
        self.size = self._held = 0
        self.is_whole = False

    def release(self) -> None:
        """The request is over: its bytes no longer count."""
        self._budget.give(self._held)
        self._held = 0

    async def read(self, headers: Headers) -> bytes:
        """All of it, within the limits of size. Raises Cancelled when the client left."""
        declared_size(headers, self._settings)
        parts: list[bytes] = []
        while not self.is_whole:
            parts.append(await self._part())
            self._held += len(parts[-1])
            self._budget.take(len(parts[-1]))
            check_size(self.size, self._settings)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def discard(self) -> None:
        """Read what is still coming and keep none of it, for a while: a client that is still sending would
        otherwise get a reset instead of the refusal."""
        try:
            async with asyncio.timeout(DISCARD_FOR_S):
                while not self.is_whole and self.size < 4 * self._settings.max_body_bytes:
                    await self._part()
        except (TimeoutError, Cancelled):
            pass

    async def _part(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Cancelled("the client left before its body was whole")
        part: bytes = message.get("body", b"")
        self.size += len(part)
        self.is_whole = not message.get("more_body", False)
        return part


def head(status: int, headers: Iterable[tuple[str, str]], length: int | None) -> dict[str, Any]:
    """The message that starts an answer; a stream has no length."""
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    if length is not None:
        raw.append((b"content-length", str(length).encode("ascii")))
    return {"type": "http.response.start", "status": status, "headers": raw}


async def send_reply(send: Send, reply: Reply, *, head_only: bool = False) -> None:
    await send(head(reply.status, reply.headers, len(reply.body)))
    await send({"type": "http.response.body", "body": b"" if head_only else reply.body})


async def send_refusal(send: Send, reply: Reply, body: Body) -> None:
    """Answer before the request's body was whole: the refusal first, then its body is read and thrown away."""
    if body.is_whole:
        await send_reply(send, reply)
        return
    await send(head(reply.status, (*reply.headers, ("connection", "close")), len(reply.body)))
    await send({"type": "http.response.body", "body": reply.body, "more_body": True})
    await body.discard()
    await send({"type": "http.response.body", "body": b""})
