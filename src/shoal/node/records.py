"""What is kept of a node's work for people to see: counts for `/metrics`, a tally for its status, spans of traces.

The agent tells it what happened; nothing decides by it.
"""

from collections.abc import Iterable

from shoal.node.replica import Flight, Replica
from shoal.node.tally import Tally
from shoal.node.tickets import Ticket
from shoal.node.tracing import Tracing
from shoal.observe import metrics, traces
from shoal.protocol.envelope import Chunk
from shoal.protocol.errors import ShoalError
from shoal.protocol.frames import Answer


class Records:
    def __init__(self) -> None:
        self.tally = Tally()
        self._tracing = Tracing() if traces.is_on() else None

    def took(self, ticket: Ticket, began: float, now: float) -> None:
        """A job was pulled, and opened from `began` to `now`."""
        line = ticket.envelope.line
        waited = max(0.0, began - ticket.envelope.received)
        self.tally.took(line, waited, now)
        if ticket.delivery.is_again:
            self.tally.redelivered(line, now)
        metrics.waited(line, waited)
        if self._tracing is not None:
            self._tracing.took(ticket, began, now)

    def sent(self, flights: Iterable[Flight], now: float) -> None:
        """A window went to a runtime."""
        if self._tracing is not None:
            self._tracing.sent((flight.ticket for flight in flights), now)

    def ran(self, replica: Replica, answer: Answer, now: float) -> None:
        """A runtime's answer came, with the items still in flight."""
        measured = answer.measured
        if measured is None:
            return
        line, profile = replica.line.model.name, replica.profile
        useful = sum(output.tokens for output in answer.outputs)
        fill = min(1.0, profile.batches(measured.items, measured.tokens))
        metrics.batch(line, measured.items, measured.tokens, useful, fill, measured.seconds)
        self.tally.ran(line, profile, measured, useful, now)
        if self._tracing is not None:
            flights = (replica.flying.get(key) for key in answer.keys)
            self._tracing.ran((flight.ticket for flight in flights if flight is not None), replica, measured)

    def answered(self, ticket: Ticket, chunk: Chunk, began: float, now: float) -> None:
        """From `began` to `now` its outputs were put into bytes."""
        metrics.items(ticket.model.name, ticket.envelope.task, len(ticket.items))
        if self._tracing is not None:
            self._tracing.closed(ticket, chunk, began, now)

    def refused(self, ticket: Ticket, error: ShoalError, chunk: Chunk, now: float) -> None:
        metrics.refused(error.code)
        if self._tracing is not None:
            self._tracing.closed(ticket, chunk, now, now)

    def gave_back(self, ticket: Ticket, now: float) -> None:
        line = ticket.envelope.line
        self.tally.gave_back(line, now)
        self.dropped(ticket, now)

    def dropped(self, ticket: Ticket, now: float) -> None:
        """Nobody waits for it, or others compute it."""
        if self._tracing is not None:
            self._tracing.closed(ticket, None, now, now)
