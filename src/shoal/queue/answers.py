"""Putting one job's answer together from chunks that come late, twice, out of order, or from two nodes.

Shared by every queue. Pure but for the one future that `next` waits on.
"""

import asyncio
from collections import deque

from shoal.protocol.envelope import Chunk
from shoal.protocol.errors import ResourceExhausted, ShoalError, over_limit

MOST_AHEAD = 64
"""Chunks kept while an earlier one is missing."""
MOST_BYTES = 64 * 1024 * 1024
"""What may wait for a client that reads too slowly."""


class Answer:
    """Chunks of one job, each once and in order. Only the lease that sent chunk 0 is listened to."""

    __slots__ = ("_ahead", "_awaited", "_bytes", "_chunks", "_lease", "_next", "complete", "failure", "status")

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self._ahead: dict[tuple[int, int], Chunk] = {}
        self._awaited: asyncio.Future[None] | None = None
        self._lease = 0
        self._next = 0
        self._bytes = 0
        self.status = 0
        self.complete = False
        self.failure: ShoalError | None = None

    @property
    def started(self) -> bool:
        return self._next > 0

    def put(self, chunk: Chunk, lease: int) -> None:
        """1. Over. 2. Another's. 3. Seen. 4. Too early: kept. 5. The next, then those that waited for it."""
        if self.complete or self.failure is not None:  # 1
            return
        if self._next and lease != self._lease:  # 2
            return
        if chunk.seq < self._next:  # 3
            return
        if chunk.seq > self._next:  # 4
            self._keep(chunk, lease)
            return
        self._lease = lease
        following: Chunk | None = chunk  # 5
        while following is not None:
            self._take(following)
            following = self._ahead.pop((lease, self._next), None)
        self._wake()

    def fail(self, error: ShoalError) -> None:
        """Nothing more comes; `next` raises `error` once what is here has been taken."""
        if not self.complete and self.failure is None:
            self.failure = error
            self._wake()

    async def next(self) -> Chunk:
        while not self._chunks:
            if self.failure is not None:
                raise self.failure
            self._awaited = asyncio.get_running_loop().create_future()
            await self._awaited
        chunk = self._chunks.popleft()
        self._bytes -= len(chunk.data)
        return chunk

    def _keep(self, chunk: Chunk, lease: int) -> None:
        if len(self._ahead) >= MOST_AHEAD:
            self.fail(ResourceExhausted("a piece of the answer was lost on its way"))
            return
        self._ahead[lease, chunk.seq] = chunk

    def _take(self, chunk: Chunk) -> None:
        self.status = self.status or chunk.status
        self._next += 1
        self._bytes += len(chunk.data)
        self._chunks.append(chunk)
        if chunk.last:
            self.complete = True
            self._ahead.clear()
        elif self._bytes > MOST_BYTES:
            self.fail(
                over_limit(
                    ResourceExhausted, "what waits for the client", seen=self._bytes, limit=MOST_BYTES,
                    setting="reading faster", unit="bytes",
                )
            )  # fmt: skip

    def _wake(self) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)
