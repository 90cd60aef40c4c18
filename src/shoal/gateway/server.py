"""Listening: uvicorn on this loop, with a bound on connections and on how long a head may take."""

import asyncio
import contextlib
import logging
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shoal.gateway.settings import GatewaySettings
from shoal.observe import metrics

log = logging.getLogger("shoal.gateway")


def bounded(settings: GatewaySettings) -> type[HttpToolsProtocol]:
    """uvicorn's protocol, which by itself keeps any number of connections that never say a word."""

    class Bounded(HttpToolsProtocol):
        _head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            metrics.CONNECTIONS.set(len(self.connections))
            if len(self.connections) > settings.max_connections:
                transport.write(_too_many(settings))
                transport.close()
                return
            self._head_timer = self.loop.call_later(settings.head_timeout_s, self._give_up)

        def on_headers_complete(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
            super().connection_lost(exc)
            metrics.CONNECTIONS.set(len(self.connections))

        def _give_up(self) -> None:
            self.transport.close()

    return Bounded


def _too_many(settings: GatewaySettings) -> bytes:
    body = (
        '{"error":{"code":"RESOURCE_EXHAUSTED","message":"more connections than the limit of '
        f'{settings.max_connections}; --max-connections changes it"}}}}'
    )
    head = (
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 5\r\n"
        f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode("ascii")


class Server(uvicorn.Server):
    """uvicorn, but signals are its owner's: the queue and the node must end after it, not beside it."""

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()


def listen(host: str, port: int) -> socket.socket:
    """A bound socket. Raises OSError with the address in it where it is taken or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"{host}:{port}: {error.strerror}") from error
    return sock


def make_server(app: Any, settings: GatewaySettings) -> Server:
    config = uvicorn.Config(
        app, http=bounded(settings), ws="none", lifespan="off", interface="asgi3", access_log=False,
        log_config=None, server_header=False, date_header=False, backlog=4096, timeout_keep_alive=75,
        h11_max_incomplete_event_size=64 * 1024,
    )  # fmt: skip
    return Server(config)
