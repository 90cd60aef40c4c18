"""Listening: uvicorn on the caller's loop, every connection a bounded one."""

import contextlib
import logging
import socket

import uvicorn

from shoal.gateway.app import Gateway
from shoal.gateway.connection import Connection
from shoal.gateway.settings import GatewaySettings

log = logging.getLogger("shoal.gateway")


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
        raise OSError(error.errno, f"{host}:{port}: {error.strerror}; --port chooses another") from error
    return sock


def make_server(app: Gateway, settings: GatewaySettings) -> Server:
    bounded = type("Bounded", (Connection,), {"settings": settings, "early": app.early})
    config = uvicorn.Config(
        app, http=bounded, ws="none", lifespan="off", interface="asgi3", access_log=False, log_config=None,
        server_header=False, date_header=False, proxy_headers=False, backlog=4096, timeout_keep_alive=75,
    )  # fmt: skip
    return Server(config)
