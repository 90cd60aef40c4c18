"""A framed Unix socket on an event loop: bodies come out whole, sends never block.

Both ends of the road between node and runtime host use it. It does not know what a frame means.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import cast

from shoal.protocol import frames

log = logging.getLogger("shoal.channel")


class Channel(asyncio.Protocol):
    """`on_body(bytes)` for every frame; `on_lost()` once, when the peer is gone or spoke nonsense."""

    def __init__(self, on_body: Callable[[bytes], None], on_lost: Callable[[], None]) -> None:
        self._on_body = on_body
        self._on_lost = on_lost
        self._splitter = frames.Splitter()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(
        cls, sock: socket.socket, on_body: Callable[[bytes], None], on_lost: Callable[[], None]
    ) -> "Channel":
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_connection(lambda: cls(on_body, on_lost), sock=sock)
        return channel

    def send(self, frame: frames.Control | frames.Data) -> None:
        """Queue `frame` for the peer. Frames sent to a lost peer are dropped: `on_lost` has told."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frames.encode(frame))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclass

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._splitter.feed(data):
                self._on_body(body)
        except frames.BrokenFrame:
            log.exception("a peer spoke nonsense and is cut off")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()
