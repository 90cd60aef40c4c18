"""What one device of the node is predicted to be busy with: the windows of all replicas on it, in the order in
which they were sent. State, with the prediction that belongs to it; `Replica` keeps it.

A device computes one after another, or shares itself among them: either way it is done when all of it is.
"""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from shoal.node.replica import Replica


class Window(msgspec.Struct, eq=False):
    """One that is not answered in full: how many items are left of it, and what was predicted, in seconds."""

    left: int
    takes_s: float
    due_at: float = 0.0


class Occupancy:
    def __init__(self, device: str) -> None:
        self.device = device
        self.replicas: list[Replica] = []
        self.wanted: frozenset[str] = frozenset()
        """Lines of which one is being pulled from for it; none while it is not pulled for."""
        self._windows: list[Window] = []

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def due_at(self) -> float:
        """When the device is predicted to have nothing left to do; 0 if it has nothing now."""
        return self._windows[-1].due_at if self._windows else 0.0

    def is_overdue(self, now: float) -> bool:
        """Its oldest window should be done."""
        return bool(self._windows) and self._windows[0].due_at < now

    def sent(self, window: Window, now: float) -> None:
        window.due_at = max(now, self.due_at) + window.takes_s
        self._windows.append(window)

    def ended(self, window: Window, now: float) -> None:
        """Answered, or called back: what was sent after it is predicted anew."""
        was_first = self._windows[0] is window
        self._windows.remove(window)
        at, rest = now, self._windows
        if not was_first:
            at, rest = max(now, self._windows[0].due_at), self._windows[1:]
        for each in rest:
            each.due_at = at = at + each.takes_s
