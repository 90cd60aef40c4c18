"""One line of the in-memory queue: the jobs that wait for one model, and the pulls that wait for jobs."""

import asyncio
from collections import deque

from shoal.protocol.envelope import Job

PROMOTED_EVERY = 4


class Line:
    """Jobs waiting for one model: two queues by priority, and the pullers parked on them."""

    def __init__(self) -> None:
        self._interactive: deque[Job] = deque()
        self._batch: deque[Job] = deque()
        self._parked: deque[asyncio.Future[None]] = deque()
        self.size_bytes = 0
        self._turn = 0

    @property
    def jobs(self) -> int:
        return len(self._interactive) + len(self._batch)

    @property
    def oldest(self) -> float:
        return min(queue[0].envelope.received for queue in (self._interactive, self._batch) if queue)

    @property
    def idle(self) -> bool:
        return not self.jobs and not self._parked

    def next_queue(self, promote_before: float) -> deque[Job]:
        """Interactive first; of both, a batch job that has waited since before `promote_before` has one turn in
        PROMOTED_EVERY: always first, a long batch backlog would keep everybody else waiting."""
        if not self._batch or not self._interactive:
            return self._batch or self._interactive
        if self._batch[0].envelope.received >= promote_before:
            return self._interactive
        self._turn += 1
        return self._batch if self._turn % PROMOTED_EVERY == 1 else self._interactive

    def append(self, job: Job) -> None:
        self._queue_of(job).append(job)
        self.size_bytes += len(job.body)

    def appendleft(self, job: Job) -> None:
        self._queue_of(job).appendleft(job)
        self.size_bytes += len(job.body)

    def popleft(self, queue: deque[Job]) -> None:
        self.size_bytes -= len(queue.popleft().body)

    def remove(self, job_id: str) -> bool:
        for queue in (self._interactive, self._batch):
            for job in queue:
                if job.envelope.id == job_id:
                    queue.remove(job)
                    self.size_bytes -= len(job.body)
                    return True
        return False

    def _queue_of(self, job: Job) -> deque[Job]:
        return self._batch if job.envelope.priority == "batch" else self._interactive

    async def wait(self, seconds: float) -> None:
        parked = asyncio.get_running_loop().create_future()
        self._parked.append(parked)
        try:
            async with asyncio.timeout(seconds):
                await parked
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if parked.done():
                self.wake()  # this wake-up was another's
            raise
        finally:
            if parked in self._parked:
                self._parked.remove(parked)

    def wake(self) -> None:
        while self._parked:
            parked = self._parked.popleft()
            if not parked.done():
                parked.set_result(None)
                return
