"""A real `shoal serve` in a process of its own, for tests and benches: started, waited for, drained."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path


class Server:
    """A running server. `log` is its stderr's file."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
        self.process, self.port, self.log = process, port, log
        self.url = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.HTTPError):
            return False

    def wait_ready(self, within_s: float = 60.0) -> None:
        """Raises RuntimeError, with the end of the log, if the server ends or takes too long."""
        until = time.monotonic() + within_s
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the server is not ready:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.02)

    def runtime_pids(self) -> list[int]:
        """The runtime processes now alive, children of the server."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def stop(self, within_s: float = 60.0) -> int:
        """Ask it to drain; its exit code. Killed, and subprocess.TimeoutExpired raised, if it takes too long."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def serving(home: Path, *options: str, wait: bool = True, **environment: str) -> Iterator[Server]:
    """A server on a free port with the models of `home`; `options` as on the command line."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "shoal", "serve", "--port", str(port), "--home", str(home), *options],
                stderr=stderr,
                env=os.environ | environment,
            )
        server = Server(process, port, log)
        try:
            if wait:
                server.wait_ready()
            yield server
            server.stop()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
