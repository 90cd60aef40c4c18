"""Answers whose clients do not read them: what they hold in memory, all together. Of those that read nothing for a
while the first to have stopped is let go first. A client that reads is kept, however slow, whatever it asked for.
"""

from typing import Protocol

PATIENCE_S = 1.0


class Reader(Protocol):
    def owed_bytes(self) -> int:
        """What waits for it beyond what the system's buffers took."""
        ...

    def let_go(self) -> None:
        """End the connection; what it was still owed is thrown away."""
        ...


class Unread:
    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._seen: dict[Reader, tuple[int, float]] = {}  # what it was owed, and since when it has read nothing

    @property
    def is_over(self) -> bool:
        """One alone may be owed any amount."""
        return len(self._seen) > 1 and sum(size for size, _ in self._seen.values()) > self._limit

    def note(self, reader: Reader, now: float) -> None:
        """`reader` is owed more than the system takes; while that `is_over`, room is to be made soon."""
        self._seen[reader] = reader.owed_bytes(), now

    def make_room(self, now: float) -> None:
        for reader, (size, since) in list(self._seen.items()):
            if not self.is_over:
                return
            owed = reader.owed_bytes()
            if owed < size:
                del self._seen[reader]
                self._seen[reader] = owed, now
            elif now - since >= PATIENCE_S:
                del self._seen[reader]
                reader.let_go()

    def forget(self, reader: Reader) -> None:
        self._seen.pop(reader, None)
