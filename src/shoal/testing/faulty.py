"""A queue that misbehaves as a shared one may: the wrapper injects what a network and lost nodes do to any queue.

Everything it does is within the contract: whoever works on top of it must answer every job once all the same.
"""

import asyncio
import random
from collections.abc import Callable, Mapping

import msgspec

from shoal.protocol.envelope import Chunk, Job, Priority
from shoal.protocol.errors import QueueFull, ShoalError
from shoal.queue import Bounds, Delivery, Depth, Inbox, Listener, Queue


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """How often each happens, from 0 to 1."""

    reply_twice: float = 0.0
    swap_chunks: float = 0.0
    """A piece of a stream overtakes the one before it."""
    late_ack: float = 0.0
    """The ack is not heard before the lease has run out: call `release`, or the lease will."""
    lost_extend: float = 0.0
    forget_give_back: float = 0.0
    """The job comes back only when its lease has run out."""
    refuse_late: float = 0.0
    """The line turns out to be full only after `publish` has returned."""
    refuse_all_late: bool = False
    """Where the inner queue refuses at once, do so from the inbox."""


class FaultyQueue:
    """A `Queue` around another."""

    def __init__(self, inner: Queue, faults: Faults, seed: int = 0) -> None:
        self._inner = inner
        self._faults = faults
        self._random = random.Random(seed)
        self._late: list[Callable[[], None]] = []

    def happens(self, share: float) -> bool:
        return self._random.random() < share

    def release(self) -> None:
        """Let every word through that was held up."""
        late, self._late = self._late, []
        for act in late:
            act()

    async def publish(self, job: Job) -> Inbox:
        if self.happens(self._faults.refuse_late):
            return _Refused(QueueFull(f"the line of {job.envelope.line} is full"))
        try:
            return await self._inner.publish(job)
        except QueueFull as error:
            if not self._faults.refuse_all_late:
                raise
            return _Refused(error)

    def keep_apart(self, line: str) -> None:
        self._inner.keep_apart(line)

    def refusal(self, line: str, priority: Priority, deadline: float) -> ShoalError | None:
        return self._inner.refusal(line, priority, deadline)

    async def pull(self, line: str, *, max_jobs: int, max_bytes: int, wait_s: float) -> list[Delivery]:
        deliveries = await self._inner.pull(line, max_jobs=max_jobs, max_bytes=max_bytes, wait_s=wait_s)
        return [_FaultyDelivery(self, self._faults, delivery) for delivery in deliveries]

    async def pull_any(
        self, wanted: Mapping[str, Bounds], *, wait_s: float, stop: asyncio.Event
    ) -> tuple[str, list[Delivery]]:
        line, deliveries = await self._inner.pull_any(wanted, wait_s=wait_s, stop=stop)
        return line, [_FaultyDelivery(self, self._faults, delivery) for delivery in deliveries]

    async def depths(self) -> dict[str, Depth]:
        return await self._inner.depths()

    async def others_waiting(self, line: str) -> int:
        return await self._inner.others_waiting(line)

    async def others_pull(self, line: str, within_s: float) -> bool:
        return await self._inner.others_pull(line, within_s)

    def listen(self, listener: Listener) -> None:
        self._inner.listen(listener)

    async def stop_pulling(self) -> None:
        await self._inner.stop_pulling()

    async def close(self) -> None:
        await self._inner.close()

    def later(self, act: Callable[[], None]) -> None:
        self._late.append(act)


class _FaultyDelivery:
    def __init__(self, queue: FaultyQueue, faults: Faults, inner: Delivery) -> None:
        self._queue, self._faults, self._inner = queue, faults, inner
        self.job = inner.job
        self._overtaken: Chunk | None = None

    @property
    def is_again(self) -> bool:
        return self._inner.is_again

    def reply(self, chunk: Chunk) -> None:
        if not chunk.last and self._overtaken is None and self._queue.happens(self._faults.swap_chunks):
            self._overtaken = chunk
            return
        self._send(chunk)
        if self._overtaken is not None:
            self._send(self._overtaken)
            self._overtaken = None

    def ack(self) -> None:
        if self._queue.happens(self._faults.late_ack):
            self._queue.later(self._inner.ack)
        else:
            self._inner.ack()

    def extend(self) -> None:
        if not self._queue.happens(self._faults.lost_extend):
            self._inner.extend()

    def give_back(self) -> None:
        if not self._queue.happens(self._faults.forget_give_back):
            self._inner.give_back()

    def _send(self, chunk: Chunk) -> None:
        self._inner.reply(chunk)
        if self._queue.happens(self._faults.reply_twice):
            self._inner.reply(chunk)


class _Refused:
    """The inbox of a job that was never accepted."""

    def __init__(self, error: QueueFull) -> None:
        self._error = error

    async def next(self) -> Chunk:
        raise self._error

    def close(self) -> None:
        pass
