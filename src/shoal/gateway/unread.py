"""Answers whose clients do not read them: what they hold in memory, all together. Whoever has read nothing for the
longest is let go first; a client that reads, however much it asked for, is not."""

from typing import Protocol


class Reader(Protocol):
    def let_go(self) -> None:
        """End the connection; what it was still owed is thrown away."""
        ...


class Unread:
    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._sizes: dict[Reader, int] = {}  # in the order in which they stopped reading

    def note(self, reader: Reader, size_bytes: int) -> None:
        """What `reader` is owed beyond what the system's buffers took. One alone may be owed any amount."""
        self._sizes[reader] = size_bytes  # who is here already keeps his place
        while len(self._sizes) > 1 and sum(self._sizes.values()) > self._limit:
            first = next(iter(self._sizes))
            del self._sizes[first]
            first.let_go()

    def forget(self, reader: Reader) -> None:
        self._sizes.pop(reader, None)
