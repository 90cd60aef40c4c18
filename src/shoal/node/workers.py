"""A node's runtime processes: started, spoken to, watched, ended. Decides nothing; events go to its owner."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from shoal.observe import log as logs
from shoal.protocol import frames
from shoal.protocol.errors import ResourceExhausted, ShoalError, from_fault
from shoal.protocol.facts import Profile
from shoal.protocol.items import Item
from shoal.runtimes.channel import Channel
from shoal.runtimes.turns import Turns

log = logging.getLogger("shoal.node")
STOP_WITHIN_S = 5.0
_ENVIRONMENT = {
    # The streams are a runtime's threads; numpy's products would each start as many again.
    "OPENBLAS_NUM_THREADS": "1",
    # Matrices in huge pages, where the system gives them on request: a few percent for a few megabytes.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
T = TypeVar("T")


class Listener(Protocol):
    """What the agent hears of a worker, by its number. After `exited` nothing more comes."""

    def on_begun(self, worker: int) -> None: ...
    def on_loaded(self, worker: int, profile: Profile, seconds: float) -> None: ...
    def on_load_failed(self, worker: int, error: ShoalError) -> None: ...
    def on_took_adapter(self, worker: int, digest: str, size_bytes: int, seconds: float) -> None: ...
    def on_adapter_failed(self, worker: int, digest: str, error: ShoalError) -> None: ...
    def on_answer(self, worker: int, answer: frames.Answer) -> None: ...
    def on_exited(self, worker: int, asked: bool) -> None: ...


class Worker:
    """One process, in the environment that this one runs in. `files` says where the model's are, once they are."""

    def __init__(
        self,
        number: int,
        load: frames.Load,
        listener: Listener,
        turns: Turns | None = None,
        files: Callable[[], Awaitable[Path]] | None = None,
    ) -> None:
        self.number = number
        self._turns = turns
        self._load, self._files = load, files
        self._coming: asyncio.Future[Path] | None = None
        self._listener = listener
        self._control: Channel | None = None
        self._data: Channel | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._asked = False
        self._gone = asyncio.Event()
        self._windows = 0

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    async def run(self) -> None:
        """Start, serve, and return when the process is gone. Always ends with one `on_exited`."""
        try:
            if self._files is not None:
                self._coming = asyncio.ensure_future(self._files())
                self._load = msgspec.structs.replace(self._load, folder=str(await self._coming))
                self._listener.on_begun(self.number)
            await self._start()
            assert self._process is not None
            code = await self._process.wait()
            if not self._asked:
                log.warning("a runtime died", extra=logs.fields(model=self._load.model, pid=self.pid, code=code))
        except asyncio.CancelledError:
            if not self._asked:
                raise
        except ShoalError as error:  # of the files
            self._asked = True
            self._listener.on_load_failed(self.number, error)
        except OSError as error:
            shortage = ResourceExhausted(f"no runtime process could be started: {error}")
            self._listener.on_load_failed(self.number, shortage)
        finally:
            for channel in (self._control, self._data):
                if channel is not None:
                    channel.close()
            self._gone.set()
            self._listener.on_exited(self.number, self._asked)

    async def _start(self) -> None:
        ours_control, theirs_control = socket.socketpair()
        ours_data, theirs_data = socket.socketpair()
        fds = theirs_control.fileno(), theirs_data.fileno()
        with theirs_control, theirs_data:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "shoal.runtimes.host", *map(str, fds),
                pass_fds=(*fds, *(self._turns.fds if self._turns else ())),
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C is for the server, which drains; not for us
                env=_ENVIRONMENT | os.environ | (self._turns.environment if self._turns else {}),
            )  # fmt: skip
        self._control = await Channel.open(ours_control, self._on_control, lambda: None)
        self._data = await Channel.open(ours_data, self._on_data, lambda: None)
        self._control.send(frames.Stop() if self._asked else self._load)  # asked while it was starting

    def send(self, keys: list[int], items: list[Item], jobs: list[str]) -> None:
        """`jobs` says of which request each item is."""
        assert self._data is not None
        self._windows += 1
        self._data.send(frames.Window(self._windows, keys, items, jobs))

    def take_adapter(self, digest: str, folder: Path) -> None:
        assert self._control is not None
        self._control.send(frames.TakeAdapter(digest, str(folder)))

    def drop_adapter(self, digest: str) -> None:
        assert self._control is not None
        self._control.send(frames.DropAdapter(digest))

    def cancel(self, keys: list[int]) -> None:
        assert self._control is not None
        self._control.send(frames.Cancel(keys))

    async def stop(self) -> None:
        """Ask the process to end, make it if it does not, and wait until it is gone."""
        self._asked = True
        if self._coming is not None:
            self._coming.cancel()
        if self._control is not None:
            self._control.send(frames.Stop())
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                await self._gone.wait()
        except TimeoutError:
            self.kill()
            await self._gone.wait()

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)

    def footprint_bytes(self) -> int:
        """Its proportional share of memory now (PSS); 0 where the system does not tell."""
        try:
            rollup = Path(f"/proc/{self.pid}/smaps_rollup").read_text(encoding="ascii")
        except OSError:
            return 0
        return next((int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0)

    def _on_control(self, body: bytes) -> None:
        frame = self._decoded(frames.decode_control, body)
        if isinstance(frame, frames.Hello) and abs(frame.version - frames.FRAMES_VERSION) > 1:
            log.error("a runtime speaks another version", extra=logs.fields(version=frame.version))
            self.kill()
        elif isinstance(frame, frames.Loaded):
            self._listener.on_loaded(self.number, frame.profile, frame.seconds)
        elif isinstance(frame, frames.LoadFailed):
            self._asked = True
            self._listener.on_load_failed(self.number, from_fault(frame.fault))
            self.kill()
        elif isinstance(frame, frames.TookAdapter):
            self._listener.on_took_adapter(self.number, frame.digest, frame.size_bytes, frame.seconds)
        elif isinstance(frame, frames.AdapterFailed):
            self._listener.on_adapter_failed(self.number, frame.digest, from_fault(frame.fault))

    def _on_data(self, body: bytes) -> None:
        frame = self._decoded(frames.decode_data, body)
        if isinstance(frame, frames.Answer):
            self._listener.on_answer(self.number, frame)

    def _decoded(self, decode: Callable[[bytes], T], body: bytes) -> T | None:
        try:
            return decode(body)
        except frames.BrokenFrame:
            log.exception("a runtime spoke nonsense and is ended")
            self.kill()
            return None
