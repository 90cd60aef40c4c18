"""One connection to the target: sends a request, reports its answer or its loss; knows not the load's shape."""

import asyncio
import ssl
from typing import Protocol, cast

from shoal.lab.reading import BrokenAnswer, Reader
from shoal.lab.run import Target


class Owner(Protocol):
    """Who decides what a connection sends."""

    def answered(self, connection: "Connection") -> None:
        """`connection.reader` holds the answer to `connection.asked`; the connection may be used again, unless
        `connection.is_open` is false."""

    def lost(self, connection: "Connection", fault: str) -> None:
        """The connection is gone; `connection.asked` was left without an answer, if it is not None."""


class Connection(asyncio.Protocol):
    """`asked` is which request is on its way and when it began, as its owner noted it; None while idle."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._is_lost = False
        self.reader = Reader()
        self.is_open = False
        self.asked: tuple[int, float] | None = None

    def ask(self, wire: bytes, place: int, began: float) -> None:
        self.asked = place, began
        self._transport.write(wire)

    def close(self) -> None:
        """Without a report to the owner."""
        self._is_lost, self.is_open = True, False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        try:
            if self.reader.feed(data):
                self._answered()
        except BrokenAnswer as e:
            self._transport.abort()
            self._lose(f"broken answer: {e}")

    def connection_lost(self, exc: Exception | None) -> None:
        if self.asked is not None and self.reader.end() and exc is None:
            self._answered()
        else:
            self._lose("connection lost")

    def _answered(self) -> None:
        if self.asked is None:
            raise BrokenAnswer("an answer that nobody asked for")
        if self.reader.closes:
            self._is_lost, self.is_open = True, False
            self._transport.close()
        self._owner.answered(self)

    def _lose(self, fault: str) -> None:
        if not self._is_lost:
            self._is_lost, self.is_open = True, False
            self._owner.lost(self, fault)


async def connect(target: Target, owner: Owner) -> Connection:
    """Raises OSError where nothing listens."""
    context = ssl.create_default_context() if target.tls else None
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: Connection(owner), target.host, target.port, ssl=context)
    return connection
