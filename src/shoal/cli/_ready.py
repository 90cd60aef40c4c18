"""What whoever started a process hears of it: that it is ready, as systemd and `shoal up` want it by sd_notify(3),
and by its exit code whether beginning it again may help.
"""

import contextlib
import functools
import os
import socket
from collections.abc import Callable
from typing import ParamSpec

import typer

from shoal.protocol.errors import ShoalError

MISTYPED, MISCONFIGURED = 2, 78
"""Exit codes of a process that would end so again: typer's, and EX_CONFIG of sysexits(3)."""
_LASTING = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
P = ParamSpec("P")


def supervised(verb: Callable[P, None]) -> Callable[P, None]:
    """A verb that runs until it is told to end; by MISCONFIGURED it ends where another start would fail too."""

    @functools.wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        from shoal.cli import explain

        try:
            verb(*args, **kwargs)
        except (ShoalError, *_LASTING) as error:
            if isinstance(error, ShoalError) and error.retryable:
                raise
            typer.echo(explain(error), err=True)
            raise typer.Exit(MISCONFIGURED) from error

    return run


def say_ready() -> None:
    """Does nothing where nobody asked by $NOTIFY_SOCKET."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"READY=1", f"\0{address[1:]}" if address.startswith("@") else address)
