"""Whether a line is full whose jobs are kept apart by size: the server limits each class of it by itself.

A gateway knows its own jobs. Those of others it counts now and then, once it has a good part of the limit itself.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping

from shoal.protocol import subjects
from shoal.protocol.envelope import Priority
from shoal.protocol.errors import QueueUnavailable
from shoal.queue.jetstream_api import Api
from shoal.queue.waits import Crowd

LOOK_FROM = 0.125
"""The share of the limit from which on others are counted: so many gateways as there are such shares may share a
line and know when it is full."""


class Fullness:
    def __init__(self, api: Api, crowds: Mapping[str, Crowd]) -> None:
        self._api, self._crowds = api, crowds
        self._looking: asyncio.Task[None] | None = None
        self._others: dict[tuple[str, Priority], int] = {}

    def is_full(self, line: str, priority: Priority) -> bool:
        return self._own(line, priority) + self._others.get((line, priority), 0) >= self._api.jobs_per_line

    def sweep(self, lines: Iterable[str]) -> None:
        """Called now and then with the lines that are kept apart."""
        is_near = any(len(self._crowds.get(line, ())) >= LOOK_FROM * self._api.jobs_per_line for line in lines)
        if is_near and (self._looking is None or self._looking.done()):
            self._looking = asyncio.get_running_loop().create_task(self._look())

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> None:
        counted: Counter[tuple[str, Priority]] = Counter()
        with contextlib.suppress(QueueUnavailable):  # which the queue has said already
            for subject, jobs in (await self._api.counts()).subjects.items():
                counted[subjects.line_of(subject), subjects.priority_of(subject)] += jobs
        self._others = {place: max(0, jobs - self._own(*place)) for place, jobs in counted.items()}

    def _own(self, line: str, priority: Priority) -> int:
        crowd = self._crowds.get(line)
        return crowd.jobs(priority) if crowd is not None else 0
