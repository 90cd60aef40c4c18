"""One process that holds one model on one device: what it has in flight, and how it is doing.

State only. The scheduler alone changes it. From its launch to the end of its process it stands in its line's
`replicas`, and among the scheduler's `workers`.
"""

from collections import deque
from typing import TYPE_CHECKING, Literal

import msgspec

from shoal.node.tickets import Ticket
from shoal.protocol.facts import Profile

if TYPE_CHECKING:
    from shoal.node.line import Line


class Flight(msgspec.Struct, frozen=True):
    """One item at a runtime. `suspected`: another runtime died with it, so nothing else is sent beside it.

    `strikes` counts the deaths at which it was the only item there.
    """

    ticket: Ticket
    index: int
    suspected: bool = False
    strikes: int = 0


class Replica:
    """`device` is the name of one of the node's devices."""

    def __init__(self, line: "Line", worker: int, device: str, profile: Profile, now: float) -> None:
        self.line, self.worker, self.device, self.profile = line, worker, device, profile
        self.status: Literal["loading", "ready", "yielding", "stopping"] = "loading"
        self.flying: dict[int, Flight] = {}
        self.backlog = 0.0  # micro-batches' worth at the runtime, as last heard and as sent since
        self.windows = 0
        self.sent_after: deque[tuple[int, float]] = deque()  # (window, micro-batches' worth) not yet seen there
        self.sent_at = 0.0
        self.launched_at = self.last_used = self.last_heard = now
        self.loaded_at = 0.0

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
    def has_suspect(self) -> bool:
        return any(flight.suspected for flight in self.flying.values())

    def forget(self, ticket: Ticket) -> list[int]:
        """Under which keys it had items of that ticket; it has none any more."""
        keys = [key for key, flight in self.flying.items() if flight.ticket is ticket]
        for key in keys:
            del self.flying[key]
        return keys
