"""Telling whoever started a process that it is ready, as systemd and `shoal up` want it: sd_notify(3)."""

import contextlib
import os
import socket


def say_ready() -> None:
    """Does nothing where nobody asked by $NOTIFY_SOCKET."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"READY=1", f"\0{address[1:]}" if address.startswith("@") else address)
