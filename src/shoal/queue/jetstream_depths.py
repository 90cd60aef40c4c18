"""How much waits in each line of the shared queue, and since when.

The server counts jobs by subject in one call, lent ones included. Our own lent ones we know; how many are lent to
others it is asked for a few subjects at a time, those of the fullest lines first, and in between the last answer
counts.
"""

import asyncio
import time
from collections import Counter

from shoal.protocol import subjects
from shoal.queue import Depth
from shoal.queue.jetstream_api import Api
from shoal.queue.jetstream_held import Holdings
from shoal.queue.jetstream_line import Source

MOST_ASKED_FOR = 32
IN_TURN = 16
"""Of these, so many are subjects that have not been asked for the longest; the others are those with most jobs."""


Place = tuple[str, Source]
"""A line, and one of its sources: what a subject stands for."""


class Depths:
    def __init__(self, api: Api, holdings: Holdings) -> None:
        self._api = api
        self._holdings = holdings
        self._since: dict[str, float] = {}
        self._lent: dict[Place, int] = {}  # as last heard, longest ago first

    async def read(self) -> tuple[dict[str, Depth], dict[str, set[Source]]]:
        """Lines with waiting jobs, and where each line has jobs at all. Raises QueueUnavailable.

        `oldest` is when the line was first seen to have jobs here since it was last seen empty.
        """
        state = await self._api.counts()
        mean = state.bytes // state.messages if state.messages else 0
        places = {_place(subject): jobs for subject, jobs in state.subjects.items()}
        await self._ask_lent(places)
        sources: dict[str, set[Source]] = {}
        counted, lent = Counter[str](), Counter[str]()
        for (line, source), jobs in places.items():
            sources.setdefault(line, set()).add(source)
            counted[line] += jobs
            lent[line] += min(jobs, self._lent.get((line, source), 0))
        waiting = {line: jobs - max(lent[line], self._holdings.count(line)) for line, jobs in counted.items()}
        now = time.time()
        self._since = {line: self._since.get(line, now) for line, jobs in waiting.items() if jobs > 0}
        depths = {line: Depth(waiting[line], waiting[line] * mean, since) for line, since in self._since.items()}
        return depths, sources

    async def _ask_lent(self, places: dict[Place, int]) -> None:
        """For some of these, how many of their jobs are lent."""
        fullest = sorted(places, key=places.__getitem__, reverse=True)[: MOST_ASKED_FOR - IN_TURN]
        never = [place for place in places if place not in self._lent]
        others = [place for place in (*never, *self._lent) if place in places and place not in fullest]
        asked = fullest + others[:IN_TURN]
        found = await asyncio.gather(*(self._api.lent(line, *source) for line, source in asked))
        self._lent = {place: jobs for place, jobs in self._lent.items() if place in places and place not in asked}
        self._lent |= zip(asked, found, strict=True)


def _place(subject: str) -> Place:
    return subjects.line_of(subject), (subjects.priority_of(subject), subjects.class_of(subject))
