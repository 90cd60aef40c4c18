"""The child process that holds one model: `python -m shoal.runtimes.host CONTROL_FD DATA_FD`.

Four kinds of thread: the loop, which talks; one tokeniser; one that takes adapters; one per stream, which
computes. It knows one runtime and the frames. It does not know jobs, requests or other replicas. Its node restarts
it when it dies.
"""

import asyncio
import contextlib
import logging
import os
import socket
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import uvloop

from shoal.observe import log as logs
from shoal.observe.garbage import collect_seldom
from shoal.protocol import frames
from shoal.protocol.errors import ModelLoadFailed, ShoalError
from shoal.protocol.items import Output
from shoal.runtimes import Adapting, Prepared, Runtime, microbatch, open_runtime, turns
from shoal.runtimes.channel import Channel
from shoal.runtimes.compute import compute, prepare
from shoal.runtimes.memory import give_back, share_one_arena
from shoal.runtimes.silence import silence

_GIVE_BACK_EVERY_S = 5.0
_FIRST_TO_GO = 500
log = logging.getLogger("shoal.host")


class _Ready(msgspec.Struct, frozen=True):
    """A tokenised item, of which request it is, and how long its window took to tokenise."""

    key: int
    job: str
    prepared: Prepared
    seconds: float


class Host:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._control: Channel | None = None
        self._data: Channel | None = None
        self._tokeniser = _threads(1, "tokenise")
        self._adapters = _threads(1, "adapt")
        self._streams = _threads(1, "stream")
        self._runtime: Runtime | None = None
        self._ready: deque[_Ready] = deque()  # tokenised, not running; oldest first
        self._preparing = 0
        self._gone: set[int] = set()  # cancelled while some window was being tokenised
        self._idle: set[int] = set()
        self._running = 0
        self._seen = 0
        self._gave_back_at = 0.0
        self._stopped = asyncio.Event()

    async def serve(self, control: socket.socket, data: socket.socket) -> None:
        """Until told to stop, or until the node is gone (then at once: nobody waits for the answers)."""
        self._control = await Channel.open(control, self._on_control, lambda: os._exit(0))
        self._data = await Channel.open(data, self._on_data, lambda: os._exit(0))
        self._control.send(frames.Hello(os.getpid()))
        await self._stopped.wait()

    def _on_control(self, body: bytes) -> None:
        frame = frames.decode_control(body)
        if isinstance(frame, frames.Load):
            self._loop.create_task(self._load(frame))
        elif isinstance(frame, frames.Cancel):
            self._cancel(frame.keys)
        elif isinstance(frame, frames.TakeAdapter):
            self._loop.create_task(self._take_adapter(frame))
        elif isinstance(frame, frames.DropAdapter) and isinstance(self._runtime, Adapting):
            self._loop.run_in_executor(self._adapters, self._runtime.drop_adapter, frame.digest)
        elif isinstance(frame, frames.Stop):
            os._exit(0)  # the node stops us only when nothing is in flight

    def _on_data(self, body: bytes) -> None:
        frame = frames.decode_data(body)
        assert isinstance(frame, frames.Window)
        self._loop.create_task(self._prepare(frame))

    async def _load(self, frame: frames.Load) -> None:
        assert self._control is not None
        began = time.monotonic()
        try:
            runtime = await self._loop.run_in_executor(
                self._tokeniser, open_runtime, Path(frame.folder), frame.facts, frame.profile
            )
        except ShoalError as error:
            self._control.send(frames.LoadFailed(error.fault()))
            return
        except BaseException as error:  # a panic in a library is no Exception
            log.exception("load failed", extra=logs.fields(model=frame.model))
            failed = ModelLoadFailed(
                f"{frame.model} could not be loaded; the log has the details",
                error_class=type(error).__name__,
            )
            self._control.send(frames.LoadFailed(failed.fault()))
            return
        self._runtime = runtime
        self._give_back()
        self._streams = _threads(runtime.profile.slots, "stream")
        self._idle = set(range(runtime.profile.slots))
        collect_seldom()
        self._control.send(frames.Loaded(time.monotonic() - began, runtime.profile))

    async def _take_adapter(self, frame: frames.TakeAdapter) -> None:
        assert self._control is not None
        began = time.monotonic()
        try:
            if not isinstance(self._runtime, Adapting):
                raise ModelLoadFailed("this model's runtime computes no adapters")
            take = self._runtime.take_adapter
            size = await self._loop.run_in_executor(self._adapters, take, frame.digest, Path(frame.folder))
        except ShoalError as error:
            self._control.send(frames.AdapterFailed(frame.digest, error.fault()))
        except BaseException as error:  # a panic in a library is no Exception
            log.exception("an adapter could not be taken", extra=logs.fields(folder=frame.folder))
            failed = ModelLoadFailed(
                "it could not be taken; the log has the details", error_class=type(error).__name__
            )
            self._control.send(frames.AdapterFailed(frame.digest, failed.fault()))
        else:
            self._control.send(frames.TookAdapter(frame.digest, size, time.monotonic() - began))

    async def _prepare(self, window: frames.Window) -> None:
        assert self._runtime is not None
        began = time.monotonic()
        jobs = window.jobs or [""] * len(window.keys)
        self._preparing += 1
        prepared = await self._loop.run_in_executor(self._tokeniser, prepare, self._runtime, window.items, jobs)
        seconds = time.monotonic() - began
        self._seen = window.number
        done: list[tuple[int, Output]] = []
        for key, job, entry in zip(window.keys, jobs, prepared, strict=True):
            if key in self._gone:
                continue
            if isinstance(entry, Prepared):
                self._ready.append(_Ready(key, job, entry, seconds))
            else:
                done.append((key, entry if isinstance(entry, Output) else Output(fault=entry.fault())))
        self._preparing -= 1
        if not self._preparing:
            self._gone.clear()
        self._dispatch()
        if done:
            self._answer(done, None)

    def _cancel(self, keys: list[int]) -> None:
        """Drop what has not begun. Its node has forgotten the items; what still answers is ignored there."""
        gone = set(keys)
        self._ready = deque(entry for entry in self._ready if entry.key not in gone)
        if self._preparing:
            self._gone |= gone

    def _dispatch(self) -> None:
        """Give every idle stream a micro-batch; and make one ready ahead, if it is a full one. A text that is
        alone has them all."""
        if not self._idle or not self._ready:
            return
        assert self._runtime is not None
        profile = self._runtime.profile
        free = max(0, profile.streams - self._running)
        entries = list(self._ready)
        lengths = [entry.prepared.tokens for entry in entries]
        full = int(profile.batches(len(lengths), sum(lengths)))
        if profile.lone and len(entries) == 1 and not self._running:
            self._ready.clear()
            self._start(entries, profile.slots)
            return
        adapters = [entry.prepared.item.adapter for entry in entries]
        pieces = microbatch.cut(lengths, max(1, free), profile, adapters)[: min(len(self._idle), max(free, full))]
        taken = {index for piece in pieces for index in piece}
        self._ready = deque(entry for index, entry in enumerate(entries) if index not in taken)
        for piece in pieces:
            self._start([entries[index] for index in piece], self._idle.pop())

    def _start(self, entries: "list[_Ready]", slot: int) -> None:
        self._running += 1
        self._loop.create_task(self._run(entries, slot))

    async def _run(self, entries: "list[_Ready]", slot: int) -> None:
        assert self._runtime is not None
        batch, jobs = [entry.prepared for entry in entries], [entry.job for entry in entries]
        outputs, measured = await self._loop.run_in_executor(
            self._streams, compute, self._runtime, batch, slot, jobs
        )
        self._running -= 1
        if slot < self._runtime.profile.slots:
            self._idle.add(slot)
        self._dispatch()
        if measured is not None:
            measured = msgspec.structs.replace(measured, tokenize_seconds=max(e.seconds for e in entries))
        self._answer([(entry.key, output) for entry, output in zip(entries, outputs, strict=True)], measured)
        if self._loop.time() - self._gave_back_at >= _GIVE_BACK_EVERY_S:
            self._give_back()

    def _give_back(self) -> None:
        self._gave_back_at = self._loop.time()
        self._loop.run_in_executor(self._tokeniser, give_back)

    def _answer(self, answers: list[tuple[int, Output]], measured: frames.Measured | None) -> None:
        assert self._data is not None
        keys = [key for key, _ in answers]
        outputs = [output for _, output in answers]
        self._data.send(frames.Answer(keys, outputs, self._backlog(), self._seen, measured))

    def _backlog(self) -> float:
        assert self._runtime is not None
        profile = self._runtime.profile
        waiting = profile.batches(len(self._ready), sum(entry.prepared.tokens for entry in self._ready))
        return self._running + waiting


def _threads(count: int, name: str) -> ThreadPoolExecutor:
    """Named for the system too, where it lets them be: `top -H` tells what takes the time."""

    def tell() -> None:
        with contextlib.suppress(OSError):
            Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name, encoding="ascii")

    return ThreadPoolExecutor(count, name, initializer=tell)


def _be_first_to_go() -> None:
    """Where memory runs out, the system is to end a runtime, which is begun again, and no node or gateway."""
    with contextlib.suppress(OSError):  # only Linux has it
        Path("/proc/self/oom_score_adj").write_text(str(_FIRST_TO_GO), encoding="ascii")


def main() -> None:
    _be_first_to_go()
    share_one_arena()
    silence()
    turns.join_in()
    logs.configure("json" if os.environ.get("SHOAL_LOG_FORMAT") == "json" else "text")
    control, data = (socket.socket(fileno=int(fd)) for fd in sys.argv[1:3])
    uvloop.run(_serve(control, data))


async def _serve(control: socket.socket, data: socket.socket) -> None:
    await Host().serve(control, data)


if __name__ == "__main__":
    main()
