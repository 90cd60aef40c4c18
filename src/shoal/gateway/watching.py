"""WebSockets: who watches gets a message at once and then one a second. What a watcher says is ignored.

uvicorn and `websockets` do the protocol; only a connection that asks to be upgraded meets any of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from shoal.dialects import Reply
from shoal.gateway.asgi import Receive, Send, head
from shoal.protocol.errors import ResourceExhausted

EVERY_S = 1.0
MOST_WATCHERS = 64
MOST_SAID_BYTES = 4096
"""A watcher has nothing to say; a longer message ends the connection."""


class WebSocket(WebSocketsSansIOProtocol):
    """uvicorn's, as our server's other connections are ended."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(getattr(transport, "plain", transport))

    def end_after_answer(self) -> None:
        self.shutdown()


class Watchers:
    """`message` is what they are sent, ready for the wire."""

    def __init__(self, message: Callable[[], Awaitable[bytes]], write_timeout_s: float) -> None:
        self._message, self._write_timeout_s = message, write_timeout_s
        self._count = 0
        self._loop = asyncio.get_running_loop()
        self._last, self._made_at = "", 0.0

    def check_room(self) -> None:
        """Raises ResourceExhausted."""
        if self._count >= MOST_WATCHERS:
            raise ResourceExhausted(f"{MOST_WATCHERS} watch already, which is all that may")

    async def serve(self, receive: Receive, send: Send) -> None:
        """Until the watcher leaves, or does not read for too long."""
        self._count += 1
        try:
            await receive()  # that it connects
            await send({"type": "websocket.accept"})
            left = False
            while not left:
                text = await self._text()
                async with asyncio.timeout(self._write_timeout_s):
                    await send({"type": "websocket.send", "text": text})
                left = await _leaves(receive)
        except (TimeoutError, OSError):
            return  # uvicorn says so where the watcher is gone
        finally:
            self._count -= 1

    async def _text(self) -> str:
        """One for all who watch, made at most twice a second."""
        if self._loop.time() - self._made_at >= EVERY_S / 2:
            self._made_at = self._loop.time()
            self._last = (await self._message()).decode()
        return self._last


async def _leaves(receive: Receive) -> bool:
    """Whether it does before the next message is due."""
    try:
        async with asyncio.timeout(EVERY_S):
            while (await receive())["type"] != "websocket.disconnect":
                pass
    except TimeoutError:
        return False
    return True


async def refuse(send: Send, reply: Reply) -> None:
    """An answer in plain HTTP to a handshake."""
    start = head(reply.status, reply.headers, None)
    await send(start | {"type": "websocket.http.response.start"})
    await send({"type": "websocket.http.response.body", "body": reply.body})
