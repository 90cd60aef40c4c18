"""How much waits in each line of the shared queue, and since when.

The server counts jobs by subject in one call, lent ones included. Our own lent ones we know; for the fullest lines
it is asked how many are lent to others.
"""

import asyncio
import time

from shoal.protocol import subjects
from shoal.queue import Depth
from shoal.queue.jetstream_api import Api
from shoal.queue.jetstream_held import Holdings

MOST_ASKED_FOR = 32


class Depths:
    def __init__(self, api: Api, holdings: Holdings) -> None:
        self._api = api
        self._holdings = holdings
        self._since: dict[str, float] = {}

    async def read(self) -> tuple[dict[str, Depth], set[str]]:
        """Lines with waiting jobs, and the lines that hold batch jobs. Raises QueueUnavailable.

        `oldest` is when the line was first seen to have jobs here since it was last seen empty.
        """
        state = await self._api.counts()
        mean = state.bytes // state.messages if state.messages else 0
        counted: dict[str, int] = {}
        with_batch: set[str] = set()
        for subject, jobs in state.subjects.items():
            line = subjects.line_of(subject)
            counted[line] = counted.get(line, 0) + jobs
            if subjects.priority_of(subject) == "batch":
                with_batch.add(line)
        waiting = await self._without_lent(counted, with_batch)
        now = time.time()
        self._since = {line: self._since.get(line, now) for line in waiting}
        depths = {line: Depth(jobs, jobs * mean, self._since[line]) for line, jobs in waiting.items()}
        return depths, with_batch

    async def _without_lent(self, counted: dict[str, int], with_batch: set[str]) -> dict[str, int]:
        waiting = {line: jobs - self._holdings.count(line) for line, jobs in counted.items()}
        unsure = [line for line, jobs in waiting.items() if jobs > 0]
        unsure.sort(key=waiting.__getitem__, reverse=True)
        asked = unsure[:MOST_ASKED_FOR]
        lent = await asyncio.gather(*(self._lent(line, with_batch) for line in asked))
        for line, jobs in zip(asked, lent, strict=True):
            waiting[line] = min(waiting[line], counted[line] - jobs)
        return {line: jobs for line, jobs in waiting.items() if jobs > 0}

    async def _lent(self, line: str, with_batch: set[str]) -> int:
        lent = await self._api.lent(line, "interactive")
        return lent + await self._api.lent(line, "batch") if line in with_batch else lent
