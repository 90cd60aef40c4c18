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
from shoal.node.occupancy import Occupancy, Window
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


class Replica:
    """`busy_with` is what all replicas on its device have to do, `target_s` the node's latency target."""

    def __init__(
        self,
        line: "Line",
        worker: int,
        profile: Profile,
        now: float,
        busy_with: Occupancy,
        target_s: float,
    ) -> None:
        self.line, self.worker, self.profile = line, worker, profile
        self.busy_with, self._target_s = busy_with, target_s
        busy_with.replicas.append(self)
        self.status: Literal["loading", "ready", "yielding", "stopping"] = "loading"
        self.flying: dict[int, Flight] = {}
        self.backlog = 0.0  # micro-batches' worth at the runtime, as last heard and as sent since
        self.windows = 0
        self.sent_after: deque[tuple[int, float]] = deque()  # (window, micro-batches' worth) not yet seen there
        self.sent_at = 0.0
        self.open: dict[int, Window] = {}  # by number, the oldest first
        self.launched_at = self.last_used = self.last_heard = now
        self.loaded_at = 0.0
        self.measured_at = 0.0  # when its memory last was
        self.shelf = Shelf()

    @property
    def device(self) -> str:
        """The name of one of the node's devices."""
        return self.busy_with.device

    @property
    def name(self) -> str:
        """Unique on its node."""
        return f"{self.line.model.name} on {self.device}"

    @property
    def busy(self) -> bool:
        return self.status == "loading" or bool(self.flying)

    @property
    def may_have_grown(self) -> bool:
        """Whether it did anything since its memory was last measured."""
        return self.busy or self.last_used >= self.measured_at

    @property
    def at_work(self) -> float:
        """Micro-batches' worth that it has."""
        return self.backlog if self.flying else 0.0

    @property
    def running(self) -> Window | None:
        """The oldest window; those after it were sent ahead."""
        return next(iter(self.open.values()), None)

    def free_at(self, now: float) -> float:
        """When its device can use another window; infinity while nobody knows: the oldest one is late, or overdue
        and another was sent ahead already."""
        is_overdue = len(self.busy_with) > 1 and self.busy_with.is_overdue(now)
        return math.inf if is_overdue or self.is_late(now) else self.busy_with.due_at

    def is_late(self, now: float) -> bool:
        """Whether its oldest window takes much longer than was predicted."""
        return now >= self.late_at

    @property
    def late_at(self) -> float:
        """From when on; never for one that has nothing to do. Beside others' it may end as late as they."""
        running = self.running
        if running is None:
            return math.inf
        due_at = self.busy_with.due_at if len(self.busy_with) > len(self.open) else running.due_at
        return pulling.late_at(due_at, running.takes_s, self._target_s)

    def opened(self, number: int, items: int, takes_s: float, now: float) -> None:
        self.open[number] = window = Window(items, takes_s)
        self.busy_with.sent(window, now)

    def settled(self, flights: Iterable[Flight], now: float) -> None:
        """These came back, computed or called back."""
        for flight in flights:
            window = self.open.get(flight.window)
            if window is not None:
                window.left -= 1
                if not window.left:
                    self.busy_with.ended(self.open.pop(flight.window), now)

    def gone(self, now: float) -> None:
        """Its process is no more."""
        self.busy_with.replicas.remove(self)
        for window in self.open.values():
            self.busy_with.ended(window, now)
        self.open.clear()

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
