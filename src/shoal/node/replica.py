"""One process that holds one model on one device: what it has in flight, and how it is doing.

State only. The scheduler alone changes it. From its launch to the end of its process it stands in its line's
`replicas`, and among the scheduler's `workers`.
"""

import math
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import msgspec

from shoal.node import pulling
from shoal.node.adapters import Shelf
from shoal.node.tickets import Ticket
from shoal.protocol.facts import Profile

if TYPE_CHECKING:
    from shoal.node.line import Line


class Flight(msgspec.Struct, frozen=True):
    """One item at a runtime. `suspected`: another runtime died with it, so nothing else is sent beside it.

    `strikes` counts the deaths at which it was the only item there; `window` is the number of that it went with.
    """

    ticket: Ticket
    index: int
    suspected: bool = False
    strikes: int = 0
    window: int = 0


class Window(msgspec.Struct):
    """One that is not answered in full: how many items are left of it, and what was predicted, in seconds."""

    left: int
    takes_s: float
    due_at: float


class Replica:
    """`device` is the name of one of the node's devices, `target_s` the node's latency target."""

    def __init__(
        self, line: "Line", worker: int, device: str, profile: Profile, now: float, target_s: float = 0.1
    ) -> None:
        self.line, self.worker, self.device, self.profile = line, worker, device, profile
        self._target_s = target_s
        self.status: Literal["loading", "ready", "yielding", "stopping"] = "loading"
        self.flying: dict[int, Flight] = {}
        self.backlog = 0.0  # micro-batches' worth at the runtime, as last heard and as sent since
        self.windows = 0
        self.sent_after: deque[tuple[int, float]] = deque()  # (window, micro-batches' worth) not yet seen there
        self.sent_at = 0.0
        self.open: dict[int, Window] = {}  # by number, the oldest first
        self.launched_at = self.last_used = self.last_heard = now
        self.loaded_at = 0.0
        self.shelf = Shelf()

    @property
    def name(self) -> str:
        """Unique on its node."""
        return f"{self.line.model.name} on {self.device}"

    @property
    def busy(self) -> bool:
        return self.status == "loading" or bool(self.flying)

    @property
    def at_work(self) -> float:
        """Micro-batches' worth that it has."""
        return self.backlog if self.flying else 0.0

    @property
    def due_at(self) -> float:
        """When it is predicted to have nothing left to do; 0 if it has nothing now."""
        return next(reversed(self.open.values())).due_at if self.open else 0.0

    @property
    def running(self) -> Window | None:
        """The oldest window; those after it were sent ahead."""
        return next(iter(self.open.values()), None)

    def free_at(self, now: float) -> float:
        """When it can use another window; infinity while nobody knows: its oldest one is late, or overdue and
        another was sent ahead already."""
        is_overdue = self.running is not None and self.running.due_at < now and len(self.open) > 1
        return math.inf if is_overdue or self.is_late(now) else self.due_at

    def is_late(self, now: float) -> bool:
        """Whether its oldest window takes much longer than was predicted."""
        return now >= self.late_at

    @property
    def late_at(self) -> float:
        """From when on; never for one that has nothing to do."""
        running = self.running
        return pulling.late_at(running.due_at, running.takes_s, self._target_s) if running else math.inf

    def opened(self, number: int, items: int, takes_s: float, now: float) -> None:
        self.open[number] = Window(items, takes_s, max(now, self.due_at) + takes_s)

    def settled(self, flights: Iterable[Flight], now: float) -> None:
        """These came back: where the oldest window ends with them, the next is predicted anew."""
        was_running = self.running
        for flight in flights:
            window = self.open.get(flight.window)
            if window is not None:
                window.left -= 1
                if not window.left:
                    del self.open[flight.window]
        if self.running is not was_running:
            for window in self.open.values():
                window.due_at = now = now + window.takes_s

    def ahead(self, ticket: Ticket) -> int:
        """Items of it that are here but not in the oldest window."""
        first = next(iter(self.open), 0)
        return sum(flight.ticket is ticket and flight.window > first for flight in self.flying.values())

    def untouched(self) -> list[Ticket]:
        """Tickets of which nothing is in the oldest window."""
        first = next(iter(self.open), 0)
        begun = {flight.ticket.id for flight in self.flying.values() if flight.window <= first}
        tickets = {flight.ticket.id: flight.ticket for flight in self.flying.values()}
        return [ticket for name, ticket in tickets.items() if name not in begun]

    @property
    def adapters_in_flight(self) -> set[str]:
        """Digests that some item here needs."""
        return {flight.ticket.needs for flight in self.flying.values()}

    @property
    def has_suspect(self) -> bool:
        return any(flight.suspected for flight in self.flying.values())

    def forget(self, ticket: Ticket, now: float) -> list[int]:
        """Under which keys it had items of that ticket; it has none any more."""
        keys = [key for key, flight in self.flying.items() if flight.ticket is ticket]
        self.settled([self.flying.pop(key) for key in keys], now)
        return keys
