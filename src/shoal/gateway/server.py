"""Listening: uvicorn on the caller's loop, every connection a bounded one, and none cut off when it ends."""

import asyncio
import contextlib
import logging
import socket

import uvicorn

from shoal.gateway.app import Gateway
from shoal.gateway.connection import Connection
from shoal.gateway.settings import GatewaySettings
from shoal.gateway.unread import Unread
from shoal.gateway.watching import MOST_SAID_BYTES, WebSocket

log = logging.getLogger("shoal.gateway")


class Server(uvicorn.Server):
    """uvicorn, but signals are its owner's: the queue and the node must end after it, not beside it.

    When it ends, it accepts nothing more, and each answer says `connection: close`, so that its client asks
    elsewhere the next time. A connection on which nobody asks is closed after `linger_s`: sooner, the next request
    might already be on its way.
    """

    linger_s = 0.0
    protocol: type[Connection]

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        self.protocol.is_ending = True
        connections: set[Connection] = self.server_state.connections  # type: ignore[assignment]
        for connection in connections:
            connection.end_after_answer()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.linger_s):
                while connections:
                    await asyncio.sleep(0.02)
        await super().shutdown(sockets)


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A bound socket; `shared` lets others take the same port. Raises OSError with the address in it where it is
    taken or not ours.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"{host}:{port}: {error.strerror}; --port chooses another") from error
    return sock


def inherited(fd: int) -> socket.socket:
    """A socket that whoever started this process listens on: what waits there outlives us."""
    return socket.socket(fileno=fd)


def make_server(app: Gateway, settings: GatewaySettings, linger_s: float = 0.0) -> Server:
    bounded = type(
        "Bounded",
        (Connection,),
        {"settings": settings, "early": app.early, "unread": Unread(settings.max_unread_bytes)},
    )
    config = uvicorn.Config(
        app, http=bounded, ws=WebSocket, ws_max_size=MOST_SAID_BYTES, ws_per_message_deflate=False,
        lifespan="off", interface="asgi3", access_log=False, log_config=None,
        server_header=False, date_header=False, proxy_headers=False, backlog=4096, timeout_keep_alive=75,
    )  # fmt: skip
    server = Server(config)
    server.protocol, server.linger_s = bounded, linger_s
    return server
