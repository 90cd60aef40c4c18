"""A line of this node's own, in which a push is tried: nobody can ask for its model yet, and no pull brings jobs.

Part of the scheduler: it changes lines and tickets, reads no clock.
"""

from collections.abc import Callable

from shoal.catalog import Model
from shoal.node.effects import Effects
from shoal.node.line import Line
from shoal.node.tickets import Ticket


class Private:
    """`advance` brings a line as far as it can go."""

    def __init__(
        self,
        effects: Effects,
        lines: dict[str, Line],
        tickets: dict[str, Ticket],
        advance: Callable[[Line, float], None],
    ) -> None:
        self._do, self._lines, self._tickets, self._advance = effects, lines, tickets, advance

    def offer(self, ticket: Ticket, now: float) -> None:
        """One of this node's own, which no pull brought and no other node could have. For an adapter it waits in
        the line of the base, as any."""
        line = self._lines[ticket.envelope.line]
        if line.failure is not None and line.has_failed(now) and not line.replicas:
            self._do.refuse(ticket, line.failure)
        else:
            self._tickets[ticket.id] = ticket
            line.waiting.add(ticket)
            self._advance(line, now)

    def proved(self, name: str) -> None:
        """The model in this line works."""
        self._lines[name].is_proved = True

    def abandon(self, name: str) -> None:
        """Nobody waits for this model any more. What has loaded it goes as any idle process; what still loads it
        may do so for minutes, in which no other could be tried."""
        for replica in self._lines[name].replicas:
            if replica.status == "loading":
                self._do.kill(replica.worker)

    def rename(self, name: str, model: Model, now: float) -> None:
        """What was proved in this line is by now one that all can ask for; its processes go on."""
        line = self._lines[model.name] = self._lines.pop(name)
        line.model, line.is_proved = model, False
        self._advance(line, now)
