"""Processes that belong to this one: started, begun again with patience when they die, ended in order.

Knows commands, signals and exit codes, not what the processes do. What they print comes out here, each line after
a name.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from shoal.cli._ready import MISCONFIGURED, MISTYPED
from shoal.observe import log as logs
from shoal.protocol.errors import InvalidInput

log = logging.getLogger("shoal.up")
FIRST_PAUSE_S, LAST_PAUSE_S = 0.2, 10.0
HEALTHY_AFTER_S = 30.0
"""A process that lived this long is begun again at once when it dies."""
READY_WITHIN_S = 120.0
_MOST_LINE_BYTES = 1 << 20
_PR_SET_PDEATHSIG = 1


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """`command` gets the number of the start, from 1. `tells_ready`: it speaks sd_notify."""

    name: str
    command: Callable[[int], Sequence[str]]
    fds: tuple[int, ...] = ()
    environment: dict[str, str] = {}
    tells_ready: bool = True


class Child:
    """One process at a time, until `end` is called."""

    def __init__(self, spec: Spec, generation: int = 0) -> None:
        self.spec = spec
        self.generation = generation
        self.ready = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._ending = asyncio.Event()
        self._complaint = ""  # the last line of its own that begins as an error does
        self._over = asyncio.Event()  # ready, or never to be
        self._was_ready = False
        self._task = asyncio.create_task(self._stay())

    @property
    def pid(self) -> int:
        """0 while there is no process."""
        return self._process.pid if self._process is not None else 0

    async def wait_ready(self) -> bool:
        """False where it took too long. Raises InvalidInput where it cannot be started as it is configured."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_WITHIN_S):
                await self._over.wait()
        if self._over.is_set() and not self._was_ready:
            raise InvalidInput(f"{self.spec.name} cannot be started as it is configured: {self._complaint}")
        return self.ready.is_set()

    async def end(self) -> None:
        """Ask it to end, and wait for that."""
        self._ending.set()
        self._signal(signal.SIGTERM)
        await self._task

    def kill(self) -> None:
        self._ending.set()
        self._signal(signal.SIGKILL)

    async def _stay(self) -> None:
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE_S
        while not self._ending.is_set():
            began = loop.time()
            code = await self._once()
            if self._ending.is_set():
                break
            if code in (MISTYPED, MISCONFIGURED) and not self._was_ready:
                self._over.set()
                break
            pause = FIRST_PAUSE_S if loop.time() - began > HEALTHY_AFTER_S else pause
            log.warning("died", extra=logs.fields(child=self.spec.name, code=code, again_in_s=round(pause, 1)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._ending.wait()
            pause = min(LAST_PAUSE_S, 2 * pause)

    async def _once(self) -> int:
        """From its start to its end; its exit code, negative for a signal."""
        self.generation += 1
        self.ready.clear()
        with tempfile.TemporaryDirectory() as folder:
            address = Path(folder) / "ready"
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as told:
                told.bind(str(address))
                self._process = await asyncio.create_subprocess_exec(
                    *self.spec.command(self.generation), stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, pass_fds=self.spec.fds,
                    start_new_session=True, preexec_fn=_end_with_parent, limit=_MOST_LINE_BYTES,
                    env=os.environ | self.spec.environment | {"NOTIFY_SOCKET": str(address)},
                )  # fmt: skip
                if self._ending.is_set():
                    self._signal(signal.SIGTERM)
                hearing = asyncio.create_task(self._hear_ready(told))
                await self._pass_on(self._process)
                code = await self._process.wait()
                hearing.cancel()
        self._process = None
        return code

    async def _hear_ready(self, told: socket.socket) -> None:
        if self.spec.tells_ready:
            while await asyncio.get_running_loop().sock_recv(told, 4096) != b"READY=1":
                pass
        self._was_ready = True
        self.ready.set()
        self._over.set()

    async def _pass_on(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:  # longer than we keep
                continue
            if not line:
                return
            if line[:7].lower() == b"error: ":
                self._complaint = line[7:].decode(errors="replace").strip()
            sys.stderr.write(f"{self.spec.name:10} | {line.decode(errors='replace')}")

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


def _end_with_parent() -> None:
    """In the child, before its program: should we be killed, it is told to end (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def replace(child: Child) -> Child:
    """Another process of the same kind, ready before the first is told to end. Keeps the old one if it is not."""
    new = Child(child.spec, child.generation)
    try:
        is_ready, why = await new.wait_ready(), "it does not get ready"
    except InvalidInput as error:
        is_ready, why = False, error.message
    if not is_ready:
        log.error("not replaced", extra=logs.fields(child=child.spec.name, reason=why))
        await new.end()
        return child
    await child.end()
    return new
