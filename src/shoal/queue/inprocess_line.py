"""One line of the in-memory queue: the jobs that wait for one model, and the pulls that wait for jobs."""

import asyncio
from collections import deque

from shoal.protocol.envelope import Job, Priority
from shoal.queue import PROMOTED_EVERY

Source = tuple[Priority, str]
"""A priority, and a size class (classes.py)."""


class Line:
    """Jobs waiting for one model, a queue for each source that has any; and the pullers parked on them."""

    def __init__(self) -> None:
        self._waits: dict[Source, deque[Job]] = {}
        self._parked: deque[asyncio.Future[None]] = deque()
        self.jobs = 0
        self.size_bytes = 0
        self._turn = 0

    @property
    def oldest(self) -> float:
        return min(jobs[0].envelope.received for jobs in self._waits.values())

    @property
    def idle(self) -> bool:
        return not self.jobs and not self._parked

    def next_source(self, promote_before: float, last: Source | None, has_enough: bool) -> Source | None:
        """Where the next job of a pull is taken from; `last` is where the one before was.

        1. Where jobs are kept apart by size: there again, and then nowhere if the pull `has_enough` for a batch.
        2. Interactive jobs first; of both, a batch job that has waited since before `promote_before` has one turn
           in PROMOTED_EVERY.
        3. Of one priority's sources the one whose first job has waited longest.
        """
        if last in self._waits and len(self._waits) == 1:
            return last
        if last is not None and (last[1] or any(size_class for _, size_class in self._waits)):  # 1
            if last in self._waits:
                return last
            if has_enough:
                return None
        interactive, batch = self._oldest_of("interactive"), self._oldest_of("batch")  # 3
        if interactive is None or batch is None:
            return interactive or batch
        if self.head(batch).envelope.received >= promote_before:
            return interactive
        self._turn += 1
        return batch if self._turn % PROMOTED_EVERY == 1 else interactive  # 2

    def head(self, source: Source) -> Job:
        return self._waits[source][0]

    def append(self, job: Job, size_class: str) -> None:
        self._queue_of(job, size_class).append(job)
        self._count(1, job)

    def appendleft(self, job: Job, size_class: str) -> None:
        self._queue_of(job, size_class).appendleft(job)
        self._count(1, job)

    def popleft(self, source: Source) -> Job:
        job = self._waits[source].popleft()
        self._left(source, job)
        return job

    def remove(self, job_id: str) -> bool:
        for source, jobs in self._waits.items():
            for job in jobs:
                if job.envelope.id == job_id:
                    jobs.remove(job)
                    self._left(source, job)
                    return True
        return False

    def _oldest_of(self, priority: Priority) -> Source | None:
        sources = [source for source in self._waits if source[0] == priority]
        if len(sources) <= 1:
            return sources[0] if sources else None
        return min(sources, key=lambda source: self.head(source).envelope.received)

    def _queue_of(self, job: Job, size_class: str) -> deque[Job]:
        return self._waits.setdefault((job.envelope.priority, size_class), deque())

    def _left(self, source: Source, job: Job) -> None:
        if not self._waits[source]:
            del self._waits[source]
        self._count(-1, job)

    def _count(self, jobs: int, job: Job) -> None:
        self.jobs += jobs
        self.size_bytes += jobs * len(job.body)

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
