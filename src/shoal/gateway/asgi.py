"""The few ASGI shapes we use, and the two things done with them: reading a body, sending a reply."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from shoal.dialects import Reply
from shoal.gateway.admission import Headers, check_size, declared_size
from shoal.gateway.settings import GatewaySettings
from shoal.protocol.errors import Cancelled, RequestTimeout, over_limit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


async def read_body(receive: Receive, headers: Headers, settings: GatewaySettings) -> bytes:
    """The whole body, within the limits of size and time. Raises Cancelled when the client left."""
    declared_size(headers, settings)
    parts: list[bytes] = []
    size = 0
    more = True
    try:
        async with asyncio.timeout(settings.body_timeout_s):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Cancelled("the client left before its body was whole")
                parts.append(message.get("body", b""))
                more = message.get("more_body", False)
                size += len(parts[-1])
                check_size(size, settings)
    except TimeoutError:
        raise over_limit(
            RequestTimeout, "the time taken to send the body", seen=settings.body_timeout_s,
            limit=settings.body_timeout_s, setting="--body-timeout", unit="s",
        ) from None  # fmt: skip
    return parts[0] if len(parts) == 1 else b"".join(parts)


def head(status: int, headers: Iterable[tuple[str, str]], length: int | None) -> dict[str, Any]:
    """The message that starts an answer; a stream has no length."""
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    if length is not None:
        raw.append((b"content-length", str(length).encode("ascii")))
    return {"type": "http.response.start", "status": status, "headers": raw}


async def send_reply(send: Send, reply: Reply, *, head_only: bool = False) -> None:
    await send(head(reply.status, reply.headers, len(reply.body)))
    await send({"type": "http.response.body", "body": b"" if head_only else reply.body})
