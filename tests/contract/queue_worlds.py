"""The queues that the contract is tested on: each with an asker's end, a puller's end, and a clock to be moved."""

import asyncio
import contextlib
import secrets
import time

from shoal.queue import Limits
from shoal.queue.inprocess import InProcessQueue
from shoal.queue.jetstream import JetStreamQueue
from shoal.testing.faulty import FaultyQueue

LIMITS = Limits(jobs_per_line=4, bytes_per_line=4000)
SHORT_LEASE_S = 0.3


class World:
    """`asker` publishes, `puller` pulls; both are one where the queue is in one process."""

    def __init__(self):
        self.now = time.time()
        self.heard: set[tuple[str, str]] = set()
        self._heard = asyncio.Event()

    def work(self, line: str) -> None:
        self.heard.add(("work", line))
        self._heard.set()

    def cancelled(self, job_id: str) -> None:
        self.heard.add(("cancelled", job_id))
        self._heard.set()

    async def hears(self, *event: str) -> None:
        async with asyncio.timeout(5):
            while event not in self.heard:
                self._heard.clear()
                await self._heard.wait()

    async def pull(self, line="m", jobs=100, size=1 << 20, wait=0.0):
        return await self.puller.pull(line, max_jobs=jobs, max_bytes=size, wait_s=wait)

    async def take(self, count: int, line="m"):
        """Exactly `count` jobs, in as many pulls as it takes."""
        taken = []
        while len(taken) < count:
            more = await self.pull(line, jobs=count - len(taken), wait=5.0)
            assert more, f"only {len(taken)} of {count} came"
            taken += more
        return taken


class InProcessWorld(World):
    def __init__(self):
        super().__init__()
        self.queue = InProcessQueue(LIMITS, clock=lambda: self.now)
        self.asker = self.puller = self.wrapped()
        self.queue.listen(self)

    def wrapped(self):
        return self.queue

    async def leases_run_out(self) -> None:
        self.now += 60
        self.queue.redeliver_expired()

    async def most_of_a_lease(self) -> None:
        self.now += LIMITS.lease_s * 0.7
        self.queue.redeliver_expired()

    async def settle(self) -> None:
        pass

    async def close(self) -> None:
        await self.queue.close()


class FaultyWorld(InProcessWorld):
    def __init__(self, faults):
        self._faults = faults
        super().__init__()

    def wrapped(self):
        return FaultyQueue(self.queue, self._faults)


class JetStreamWorld(World):
    @classmethod
    async def open(cls, url: str) -> "JetStreamWorld":
        world = cls()
        pool, limits = secrets.token_hex(4), Limits(4, 4000, SHORT_LEASE_S)
        world.asker = await JetStreamQueue.connect(url, pool, limits)
        world.puller = await JetStreamQueue.connect(url, pool, limits, clock=lambda: world.now)
        world.puller.listen(world)
        await world.settle()
        return world

    async def leases_run_out(self) -> None:
        self.stand_still()
        await asyncio.sleep(SHORT_LEASE_S * 1.5)  # the server's clock is its own

    async def most_of_a_lease(self) -> None:
        self.stand_still()
        await asyncio.sleep(SHORT_LEASE_S * 0.7)

    def stand_still(self) -> None:
        """The puller's own timer does not run, as in a process that is stopped."""
        self.puller._tasks[0].cancel()

    async def settle(self) -> None:
        """What was said has been heard: three questions and answers later."""
        for end in (self.asker, self.puller, self.asker):
            await end.depths()

    async def close(self) -> None:
        for end in (self.asker, self.puller):
            with contextlib.suppress(asyncio.CancelledError):
                await end.close()
