"""A real queue server for tests and benches: started on a free port, killed, frozen, started again."""

import contextlib
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from shoal.queue.server import QueueServer, ServerSettings
from shoal.testing.server import free_port


class NatsServer(QueueServer):
    """What it holds is in memory: after `kill` and `start` it is empty."""

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def freeze(self) -> None:
        """It stays connected and says nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def nats_server(settings: ServerSettings | None = None) -> Iterator[NatsServer]:
    """`settings` on a free port and in a folder of its own, whatever they say of these."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = settings or ServerSettings(folder=Path(folder))
        server = NatsServer(msgspec.structs.replace(wanted, folder=Path(folder), port=free_port()))
        server.start()
        try:
            yield server
        finally:
            if server.process is not None:
                server.kill()
