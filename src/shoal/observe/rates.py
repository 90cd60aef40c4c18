"""How often something happened lately. Sums by the second; no clock of its own."""

from collections import deque

WINDOW_S = 5.0


class Rate:
    """Counts a second over the last WINDOW_S, fewer while it is younger."""

    __slots__ = ("_began", "_slots", "total")

    def __init__(self, now: float) -> None:
        self._began = now
        self._slots: deque[tuple[float, float]] = deque()  # (since, count), newest last
        self.total = 0.0

    def add(self, now: float, count: float = 1.0) -> None:
        self.total += count
        if self._slots and now - self._slots[-1][0] < 1.0:
            since, so_far = self._slots[-1]
            self._slots[-1] = since, so_far + count
        else:
            self._forget(now)
            self._slots.append((now, count))

    def per_second(self, now: float) -> float:
        self._forget(now)
        span = min(WINDOW_S, max(1.0, now - self._began))
        return sum(count for _, count in self._slots) / span

    def _forget(self, now: float) -> None:
        while self._slots and now - self._slots[0][0] > WINDOW_S:
            self._slots.popleft()
