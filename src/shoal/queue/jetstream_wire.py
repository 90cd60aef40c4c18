"""The NATS client protocol on one connection: bytes in, messages out. Knows no JetStream and never reconnects.

https://docs.nats.io/reference/reference-protocols/nats-protocol. nats-py spends two queues and a task on each
message; here a message is a call.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import msgspec

OnMessage = Callable[[bytes, bytes, bytes, bytes], None]
"""subject, reply subject or b"", status line and headers or b"", payload"""


class Info(msgspec.Struct, frozen=True):
    """What a server says of itself first of all."""

    server_id: str = ""
    version: str = ""
    max_payload: int = 1024 * 1024
    headers: bool = False
    jetstream: bool = False
    tls_required: bool = False
    nonce: str = ""
    ldm: bool = False
    """It is about to go: connect to another."""


_info = msgspec.json.Decoder(Info)


class Wire(asyncio.Protocol):
    """`lost` is called once, with why. What is written while the transport is gone is dropped."""

    def __init__(self, on_message: Callable[[int, bytes, bytes, bytes, bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._on_message = on_message
        self._transport: asyncio.WriteTransport | None = None
        self._parts: list[bytes] = []
        self._size = self._need = 0
        self._out: list[bytes] = []
        self._flushing = False
        self.info: asyncio.Future[Info] = loop.create_future()
        self.lost: asyncio.Future[str] = loop.create_future()
        self._pings: deque[asyncio.Future[None] | None] = deque()
        self.refusal = ""
        self.heard = loop.time()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end(self.refusal or (f"{type(exc).__name__}: {exc}" if exc else "the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self.heard = self._loop.time()
        if self._size:
            self._parts.append(data)
            self._size += len(data)
            if self._size < self._need:
                return
            data = b"".join(self._parts)
            self._parts.clear()
        try:
            used = self._parse(data)
        except (ValueError, IndexError, msgspec.MsgspecError) as error:
            self.close(f"the server does not speak NATS: {error}")
            return
        self._size = len(data) - used
        if self._size:
            self._parts.append(data[used:] if used else data)
            self._need = max(self._need - used, self._size + 1)

    # What the link asks for.

    def write(self, data: bytes) -> None:
        """Kept until the end of this turn of the loop, so that many small messages go out at once."""
        self._out.append(data)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def ping(self, answered: "asyncio.Future[None] | None" = None) -> None:
        self._pings.append(answered)
        self.write(b"PING\r\n")

    async def round_trip(self, within_s: float) -> None:
        """All that the server sent before has been handed on. Raises TimeoutError, ConnectionError."""
        answered: asyncio.Future[None] = self._loop.create_future()
        self.ping(answered)
        async with asyncio.timeout(within_s):
            await answered

    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    async def start_tls(self, context: Any, name: str) -> None:
        assert self._transport is not None
        new = await self._loop.start_tls(self._transport, self, context, server_hostname=name)
        self._transport = cast(asyncio.WriteTransport, new)

    def close(self, why: str) -> None:
        """At once; what was not sent is lost."""
        self.refusal = self.refusal or why
        if self._transport is not None:
            self._transport.abort()
        self._end(why)

    async def flush_and_close(self) -> None:
        self._flush()
        if self._transport is not None:
            self._transport.close()
            await self.lost

    def _flush(self) -> None:
        self._flushing = False
        if self._transport is not None and self._out:
            self._transport.write(self._out[0] if len(self._out) == 1 else b"".join(self._out))
        self._out.clear()

    def _end(self, why: str) -> None:
        if not self.info.done():
            self.info.set_exception(ConnectionError(why))
            self.info.exception()  # looked at: nobody has to
        if not self.lost.done():
            self.lost.set_result(why)
        for asked in self._pings:
            if asked is not None and not asked.done():
                asked.set_exception(ConnectionError(why))
        self._pings.clear()

    def _parse(self, data: bytes) -> int:
        """How many bytes of `data` were whole messages, all of which have been handed on."""
        at, end = 0, len(data)
        self._need = 0
        while at < end:
            eol = data.find(b"\r\n", at)
            if eol < 0:
                return at
            kind = data[at]
            if kind == 77 or kind == 72:  # MSG, HMSG
                words = data[at:eol].split()
                start = eol + 2
                stop = start + int(words[-1])
                if stop + 2 > end:
                    self._need = stop + 2
                    return at
                body = start if kind == 77 else start + int(words[-2])
                counted = 4 if kind == 77 else 5
                reply = words[3] if len(words) > counted else b""
                self._on_message(int(words[2]), words[1], reply, data[start:body], data[body:stop])
                at = stop + 2
            else:
                self._control(data[at:eol])
                at = eol + 2
        return at

    def _control(self, line: bytes) -> None:
        if line == b"PING":
            self.write(b"PONG\r\n")
        elif line == b"PONG":
            asked = self._pings.popleft() if self._pings else None
            if asked is not None and not asked.done():
                asked.set_result(None)
        elif line.startswith(b"INFO "):
            info = _info.decode(line[5:])
            if not self.info.done():
                self.info.set_result(info)
            elif info.ldm:
                self.close("the server is about to go")
        elif line.startswith(b"-ERR"):
            self._refused(line[4:].strip().strip(b"'").decode(errors="replace"))
        elif line != b"+OK":
            raise ValueError(line[:60].decode(errors="replace"))

    def _refused(self, why: str) -> None:
        """Permission errors leave the connection as it is; after all others the server closes it."""
        if not why.lower().startswith("permissions violation"):
            self.refusal = why
