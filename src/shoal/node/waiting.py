"""The tickets that wait for the replicas of one line, and how a window is filled from them. Pure state, no clock.

What waits is counted by the LoRA adapter that it needs too: a replica that has not taken one cannot compute it.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from shoal.catalog import Model
from shoal.node.tickets import Ticket

FAIR_ITEMS = 32
"""A job's share of a window while others wait: a request of a thousand texts does not hold up the rest."""
PROMOTE_AFTER_S = 10.0
"""A batch job that has waited this long counts as interactive, so that it is never starved."""

Can = Callable[[str], bool]
"""Whether something can be computed that needs the adapter of this digest ("": none)."""


class Count(msgspec.Struct):
    """Tickets, and what of them is not yet sent; `adapter` is the one that all of them need."""

    adapter: Model | None = None
    jobs: int = 0
    items: int = 0
    size_bytes: int = 0


class Waiting:
    def __init__(self) -> None:
        self.tickets: deque[Ticket] = deque()
        self.by_adapter: dict[str, Count] = {}
        """By the digest that tickets need, "" for none; only where some wait."""

    def __bool__(self) -> bool:
        return bool(self.tickets)

    @property
    def items(self) -> int:
        return self.count().items

    @property
    def oldest(self) -> float:
        """When the first of them came, unix seconds; 0 if there is none."""
        return self.tickets[0].arrived if self.tickets else 0.0

    def count(self, can: Can | None = None) -> Count:
        """Of all that waits, or of what `can` be computed. To be read, not changed."""
        if len(self.by_adapter) == 1 and "" in self.by_adapter:
            return self.by_adapter[""]  # as where nobody has adapters
        total = Count()
        for digest, count in self.by_adapter.items():
            if can is None or can(digest):
                total.jobs += count.jobs
                total.items += count.items
                total.size_bytes += count.size_bytes
        return total

    def of(self, digest: str) -> list[Ticket]:
        """Those that need this adapter."""
        return [ticket for ticket in self.tickets if ticket.needs == digest]

    def add(self, ticket: Ticket) -> None:
        self.tickets.append(ticket)
        count = self.by_adapter.setdefault(ticket.needs, Count(ticket.adapter))
        count.jobs += 1
        count.items += len(ticket.unsent)
        count.size_bytes += ticket.unsent_bytes()

    def returned(self, ticket: Ticket, indices: list[int]) -> None:
        """These items of it, which others had, are to be computed here after all."""
        self.remove(ticket)
        ticket.take_back(indices)
        self.add(ticket)

    def remove(self, ticket: Ticket) -> None:
        """Does nothing for one that does not wait here."""
        if ticket in self.tickets:
            self._remove(ticket)

    def clear(self) -> list[Ticket]:
        gone = list(self.tickets)
        self.tickets.clear()
        self.by_adapter.clear()
        return gone

    def fill(
        self, max_items: int, max_tokens: float, tokens_per_byte: float, now: float, can: Can | None = None
    ) -> tuple[list[tuple[Ticket, int]], list[Ticket]]:
        """A window as (ticket, index of its item), and the tickets whose deadline has passed, taken out.

        1. Interactive tickets before batch ones, each in the order in which they were last served; only those that
           `can` be computed.
        2. A ticket gives its fair share, then goes behind the others, until the window is full.
        3. The first item is always taken, however long it is.
        """
        window: list[tuple[Ticket, int]] = []
        late = [ticket for ticket in self.tickets if ticket.envelope.deadline < now]
        for ticket in late:
            self._remove(ticket)
        able = self.tickets if can is None else [ticket for ticket in self.tickets if can(ticket.needs)]
        order = deque(sorted(able, key=lambda ticket: not _is_urgent(ticket, now)))  # 1
        while order and len(window) < max_items and (max_tokens > 0 or not window):  # 2, 3
            ticket = order.popleft()
            count = self.by_adapter[ticket.needs]
            share = FAIR_ITEMS if order else max_items
            for _ in range(min(share, max_items - len(window), len(ticket.unsent))):
                index = ticket.unsent.popleft()
                size = ticket.items[index].size_bytes
                count.items -= 1
                count.size_bytes -= size
                max_tokens -= size * tokens_per_byte + 2
                window.append((ticket, index))
                if max_tokens <= 0:
                    break
            self.tickets.remove(ticket)
            if ticket.unsent:
                self.tickets.append(ticket)
                order.append(ticket)
            else:
                self._leave(ticket.needs, count)
        return window, late

    def _remove(self, ticket: Ticket) -> None:
        self.tickets.remove(ticket)
        count = self.by_adapter[ticket.needs]
        count.items -= len(ticket.unsent)
        count.size_bytes -= ticket.unsent_bytes()
        self._leave(ticket.needs, count)

    def _leave(self, digest: str, count: Count) -> None:
        count.jobs -= 1
        if not count.jobs:
            del self.by_adapter[digest]


def _is_urgent(ticket: Ticket, now: float) -> bool:
    return ticket.envelope.priority == "interactive" or now - ticket.envelope.received > PROMOTE_AFTER_S
