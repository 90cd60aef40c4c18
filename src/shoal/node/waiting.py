"""The tickets that wait for one replica, and how a window is filled from them. Pure state, no clock."""

from collections import deque

from shoal.node.tickets import Ticket

FAIR_ITEMS = 32
"""A job's share of a window while others wait: a request of a thousand texts does not hold up the rest."""
PROMOTE_AFTER_S = 10.0
"""A batch job that has waited this long counts as interactive, so that it is never starved."""


class Waiting:
    def __init__(self) -> None:
        self.tickets: deque[Ticket] = deque()
        self.items = 0
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self.tickets)

    @property
    def oldest(self) -> float:
        """When the first of them came, unix seconds; 0 if there is none."""
        return self.tickets[0].arrived if self.tickets else 0.0

    def add(self, ticket: Ticket) -> None:
        self.tickets.append(ticket)
        self.items += len(ticket.unsent)
        self.size_bytes += ticket.unsent_bytes()

    def returned(self, ticket: Ticket, indices: list[int]) -> None:
        """These items of it, which others had, are to be computed here after all."""
        self.remove(ticket)
        ticket.take_back(indices)
        self.add(ticket)

    def remove(self, ticket: Ticket) -> None:
        """Does nothing for one that does not wait here."""
        if ticket in self.tickets:
            self.tickets.remove(ticket)
            self.items -= len(ticket.unsent)
            self.size_bytes -= ticket.unsent_bytes()

    def clear(self) -> list[Ticket]:
        gone = list(self.tickets)
        self.tickets.clear()
        self.items = self.size_bytes = 0
        return gone

    def fill(
        self, max_items: int, max_tokens: float, tokens_per_byte: float, now: float
    ) -> tuple[list[tuple[Ticket, int]], list[Ticket]]:
        """A window as (ticket, index of its item), and the tickets whose deadline has passed, taken out.

        1. Interactive tickets before batch ones, each in the order in which they were last served.
        2. A ticket gives its fair share, then goes behind the others, until the window is full.
        3. The first item is always taken, however long it is.
        """
        window: list[tuple[Ticket, int]] = []
        late = [ticket for ticket in self.tickets if ticket.envelope.deadline < now]
        for ticket in late:
            self.remove(ticket)
        order = deque(sorted(self.tickets, key=lambda ticket: not _is_urgent(ticket, now)))  # 1
        while order and len(window) < max_items and (max_tokens > 0 or not window):  # 2, 3
            ticket = order.popleft()
            share = FAIR_ITEMS if order else max_items
            for _ in range(min(share, max_items - len(window), len(ticket.unsent))):
                index = ticket.unsent.popleft()
                size = ticket.items[index].size_bytes
                self.items -= 1
                self.size_bytes -= size
                max_tokens -= size * tokens_per_byte + 2
                window.append((ticket, index))
                if max_tokens <= 0:
                    break
            self.tickets.remove(ticket)
            if ticket.unsent:
                self.tickets.append(ticket)
                order.append(ticket)
        return window, late


def _is_urgent(ticket: Ticket, now: float) -> bool:
    return ticket.envelope.priority == "interactive" or now - ticket.envelope.received > PROMOTE_AFTER_S
