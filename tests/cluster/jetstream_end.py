"""A node reduced to its queue, in a process of its own: `python jetstream_end.py URL POOL LINE SECONDS NAME`.

It answers every job of LINE after SECONDS with NAME and the job's body, and prints each job it takes.
"""

import asyncio
import sys

from shoal.protocol.envelope import Chunk
from shoal.queue import Delivery, Limits
from shoal.queue.jetstream import JetStreamQueue

LIMITS = Limits(lease_s=2.0)


class Answering:
    """Pulls from one line and answers each job after a while, unless it is cancelled meanwhile."""

    def __init__(self, queue: JetStreamQueue, line: str, seconds: float, name: str) -> None:
        self.queue, self.line, self.seconds, self.name = queue, line, seconds, name
        self.jobs: dict[str, asyncio.Task[None]] = {}
        self.taken: list[str] = []
        self.cancelled_jobs: list[str] = []
        queue.listen(self)

    async def run(self) -> None:
        while True:
            for delivery in await self.queue.pull(self.line, max_jobs=8, max_bytes=1 << 20, wait_s=5.0):
                job = delivery.job.envelope.id
                self.taken.append(job)
                print(job, flush=True)
                self.jobs[job] = asyncio.ensure_future(self._answer(delivery))

    def work(self, line: str) -> None:
        pass

    def cancelled(self, job_id: str) -> None:
        self.cancelled_jobs.append(job_id)
        if task := self.jobs.pop(job_id, None):
            task.cancel()

    async def _answer(self, delivery: Delivery) -> None:
        try:
            await asyncio.sleep(self.seconds)
            delivery.reply(Chunk(delivery.job.envelope.id, f"{self.name}:".encode() + delivery.job.body))
        finally:
            delivery.ack()


async def main(url: str, pool: str, line: str, seconds: str, name: str) -> None:
    queue = await JetStreamQueue.connect(url, pool, LIMITS)
    await Answering(queue, line, float(seconds), name).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
