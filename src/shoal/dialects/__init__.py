"""Other people's bytes to our requests and back. One file a dialect; a module with a `DIALECT` is one.

A dialect knows the shapes of one HTTP API. The gateway calls `match` and `peek`, and `refuse` for errors of
its own; the node calls `decode` and `encode`. Nothing here knows about queues, models in memory or sockets.
"""

import functools
import importlib
import pkgutil
from typing import Any, Protocol

import msgspec

from shoal.protocol.envelope import Envelope
from shoal.protocol.errors import ShoalError
from shoal.protocol.facts import Facts


class Route(msgspec.Struct, frozen=True):
    """`path` is literal but for a last `{model}`, which may hold slashes. `task` names a file in tasks/; `kind` is
    the kind of vector that answers it, if the body does not choose.

    Where several routes share a method and a path, each but one has `keys`: a JSON body with any of them at its
    top level is that route's, and every other body is the one's without.
    """

    name: str
    method: str
    path: str
    task: str
    keys: tuple[str, ...] = ()
    kind: str = ""


class Reply(msgspec.Struct, frozen=True):
    """What goes to the client. `headers` in lower case, content-type among them."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Timing(msgspec.Struct, frozen=True):
    """Milliseconds that a request spent in each place, as far as known."""

    total_ms: float = 0.0
    queue_ms: float = 0.0
    tokenize_ms: float = 0.0
    compute_ms: float = 0.0


class Dialect(Protocol):
    name: str
    routes: tuple[Route, ...]

    def peek(self, route: str, body: bytes) -> str:
        """The model a body asks for, for routes whose path does not name it ("" if it names none).

        May scan top-level keys only. Raises InvalidInput where the body is no JSON object.
        """
        ...

    def decode(self, envelope: Envelope, body: bytes) -> Any:
        """The task's request. Raises InvalidInput or UnsupportedMediaType, naming what is wrong and where."""
        ...

    def encode(self, envelope: Envelope, request: Any, response: Any, facts: Facts, timing: Timing) -> Reply:
        """The answer's bytes, from the task's response (how one bad item looks is the dialect's choice)."""
        ...

    def refuse(self, error: ShoalError, *, accept: str = "") -> Reply:
        """The error in this dialect's shape, Retry-After included where the error has one."""
        ...


@functools.cache
def all_dialects() -> dict[str, Dialect]:
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    found = (getattr(importlib.import_module(f"{__name__}.{name}"), "DIALECT", None) for name in names)
    return {dialect.name: dialect for dialect in found if dialect is not None}
