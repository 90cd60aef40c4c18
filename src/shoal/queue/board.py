"""The board's contract: what is told to everyone in a cluster, beside the jobs that are queued for one of them.

*Notes* last, by key, until they are taken down: the models that nodes hold. *Statuses* pass: whoever does not
listen misses them. `jetstream_board` fills this contract; where gateway and node share a process none is needed.
"""

from typing import Protocol

from shoal.protocol.status import NodeStatus


class Reader(Protocol):
    def noted(self, key: str, note: bytes | None) -> None:
        """A note was put up or changed, or (None) taken down. Each that is up is told once at the start, and
        again after the connection was lost.
        """
        ...

    def told(self, status: NodeStatus) -> None:
        """A node's status, its reader's own included."""
        ...


class Board(Protocol):
    @property
    def era(self) -> str:
        """Differs after the queue server lost its notes. "" before the first time that it was reached."""
        ...

    def listening_s(self) -> float:
        """For how long now all that is told has been heard here; 0 while the queue server is away."""
        ...

    def put(self, key: str, note: bytes, *, keep: bool = True) -> None:
        """Put up or replace a note. Never waits. A queue server that lost its notes gets ours again, but for those
        that we do not `keep`."""
        ...

    def take_down(self, key: str) -> None: ...

    def tell(self, status: NodeStatus) -> None:
        """To all readers of the pool, at most once; nothing is kept while the queue server is away."""
        ...

    async def watch(self, reader: Reader) -> None:
        """Returns once `reader` was told all notes that were up. Raises QueueUnavailable."""
        ...
