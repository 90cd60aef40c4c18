"""Processor time of a server under a closed loop, and the echo that it is compared with."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import psutil

from shoal.lab.load import Request, Target, closed
from shoal.lab.processes import Processes
from shoal.testing.server import free_port
from sides import speed_of

WARM_UP_S = 1.0


class Cost(msgspec.Struct, frozen=True):
    """Microseconds of processor time a request: of the server and all below it, and of its children alone."""

    us: float
    children_us: float
    requests_per_second: float


class Echo(msgspec.Struct, frozen=True):
    pid: int
    port: int


def cost_of(pid: int, port: int, asked: Sequence[Request], connections: int, seconds: float) -> Cost:
    """Raises RuntimeError where a request fails."""
    all_of_it = Processes([pid])
    children = Processes([child.pid for child in psutil.Process(pid).children()])
    marks: list[tuple[float, float]] = []

    def watch() -> None:
        for wait_s in (WARM_UP_S, seconds):
            time.sleep(wait_s)
            marks.append((all_of_it.cpu_s(), children.cpu_s()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    run = closed(Target("127.0.0.1", port), asked, connections, seconds, WARM_UP_S)
    watcher.join()
    speed_of(run, f"the server on port {port}")
    us, children_us = ((after - before) / len(run.done) * 1e6 for before, after in zip(*marks, strict=True))
    return Cost(us, children_us, run.per_second)


@contextlib.contextmanager
def echoing() -> Iterator[Echo]:
    port = free_port()
    process = subprocess.Popen([sys.executable, str(Path(__file__).parent / "echo.py"), str(port)])
    try:
        until = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the echo does not listen")
            time.sleep(0.02)
        yield Echo(process.pid, port)
    finally:
        process.kill()
        process.wait()
