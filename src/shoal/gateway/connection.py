"""One client's connection: uvicorn's, with bounds on what a stranger can hold open or make us keep.

By itself it waits for ever for a head that never ends, keeps a head of any size, and keeps an answer for ever
that its client does not read.
"""

import asyncio
import re
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from shoal.gateway.asgi import LEAVING
from shoal.gateway.early import MOST_BYTES, Early
from shoal.gateway.exchange import Exchange
from shoal.gateway.settings import GatewaySettings
from shoal.gateway.unread import PATIENCE_S, Unread
from shoal.gateway.waiting import Leaving
from shoal.observe import metrics

_UPGRADE = re.compile(rb"\r\nupgrade:[ \t]*h2c[^\r\n]*", re.IGNORECASE)


class Connection(HttpToolsProtocol):
    settings: ClassVar[GatewaySettings]
    early: ClassVar[Early]
    unread: ClassVar[Unread]
    is_ending: ClassVar[bool] = False
    """The server ends: each answer is the last of its connection, and says so."""
    _held: bytes | None = None
    """The body so far of a request that may be refused without the application, which has not heard of it."""
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _in_head = False
    _in_body = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._leaving: Leaving = set()
        metrics.CONNECTIONS.set(len(self.connections))
        if len(self.connections) > self.settings.max_connections:
            limit = self.settings.max_connections
            message = f"more connections than the limit of {limit}; --max-connections changes it"
            self._refuse("503 Service Unavailable", "RESOURCE_EXHAUSTED", message, "retry-after: 5\r\n")
        else:
            self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        if not self._in_body and b"h2c" in data:
            # Java's client offers HTTP/2 with every plain request; the parser would take the body for it.
            head, end, body = data.partition(b"\r\n\r\n")
            data = _UPGRADE.sub(b"", head) + end + body
        was_in_head = self._in_head
        if was_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and not was_in_head:  # most come whole, and need no timer
            self._wait_for_head()
        if self._in_head and self._head_bytes > self.settings.max_head_bytes:
            limit = self.settings.max_head_bytes
            message = f"the head is over the limit of {limit} bytes; --max-head-bytes changes it"
            self._refuse("431 Request Header Fields Too Large", "PAYLOAD_TOO_LARGE", message)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"][LEAVING] = self._leaving
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body = False, True
        self._cancel_head_timer()
        if self.early.is_on and self._is_plain():
            self._held = b""
            self._head_timer = self.loop.call_later(self.settings.head_timeout_s, self._release)
            return
        super().on_headers_complete()
        if self.is_ending:
            self.end_after_answer()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        super()._start_asgi_task(cycle, Exchange(cycle, app))  # type: ignore[arg-type]  # an ASGI application

    def on_body(self, body: bytes) -> None:
        if self._held is None:
            super().on_body(body)
            return
        self._held += body
        if len(self._held) > MOST_BYTES:
            self._release()

    def on_message_complete(self) -> None:
        self._in_body = False
        if self._held is not None:
            reply = None if self.is_ending else self.early.reply(self.url, self.headers, self._held)
            if reply is not None:
                self._answer_early(reply)
                return
            self._release()
        super().on_message_complete()

    def _is_plain(self) -> bool:
        """A POST of HTTP/1.1 on a connection that goes on, with no other request before it."""
        return (
            self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and not self.expect_100_continue
            and (self.cycle is None or self.cycle.response_complete)
        )

    def _release(self) -> None:
        """The application gets the request after all, as much of it as is here."""
        self._cancel_head_timer()
        body, self._held = self._held, None
        super().on_headers_complete()
        if self.is_ending:
            self.end_after_answer()
        if body:
            super().on_body(body)

    def _answer_early(self, reply: bytes) -> None:
        self._cancel_head_timer()
        self._held = None
        self.transport.write(reply)
        if self.transport.get_write_buffer_size():
            self._wait_for_reader()
        if not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def end_after_answer(self) -> None:
        """The answer that is due, if any, is the last, and says so."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        if self.transport.get_write_buffer_size():
            self._wait_for_reader()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()
        self.unread.note(self, self.loop.time())
        if self.unread.is_over:
            self.loop.call_later(PATIENCE_S, self._make_room)

    def _make_room(self) -> None:
        self.unread.make_room(self.loop.time())

    def owed_bytes(self) -> int:
        size: int = self.transport.get_write_buffer_size()
        return size

    def let_go(self) -> None:
        self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.unread.forget(self)
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head_timer()
        if self._write_timer is not None:
            self._write_timer.cancel()
        super().connection_lost(exc)
        self.cycle = None  # type: ignore[assignment]  # each holds the other, and all that was asked and answered
        self.unread.forget(self)
        for leave in list(self._leaving):
            leave()
        metrics.CONNECTIONS.set(len(self.connections))

    def _wait_for_head(self) -> None:
        self._cancel_head_timer()
        self._head_timer = self.loop.call_later(self.settings.head_timeout_s, self.transport.close)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _wait_for_reader(self) -> None:
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.settings.write_timeout_s, self._give_up_on_reader)

    def _give_up_on_reader(self) -> None:
        self._write_timer = None
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _refuse(self, status: str, code: str, message: str, more: str = "") -> None:
        """Answer below the application, which never hears of it, and close."""
        body = f'{{"error":{{"code":"{code}","message":"{message}"}}}}'
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{more}connection: close\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode("ascii"))
        self.transport.close()
