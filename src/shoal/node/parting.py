"""What becomes of the jobs of a model that was removed from this node: others that have it get them, once; and of
those for which nothing was begun yet when the node ends.

Part of the scheduler. Whether others have it shows on the board: a note that we took down is put up again by
whoever holds the model too.
"""

from collections.abc import Iterable

from shoal.node.effects import Effects
from shoal.node.feeding import Feeding
from shoal.node.line import Line
from shoal.node.loading import Loading
from shoal.node.peers import Peers
from shoal.node.tickets import Ticket
from shoal.protocol.errors import ModelNotFound
from shoal.queue import Delivery

HEARD_AFTER_S = 1.9
"""Our note is taken down within a second, and others answer at once."""


class Parting:
    def __init__(
        self, effects: Effects, peers: Peers, feeding: Feeding, loading: Loading, tickets: dict[str, Ticket]
    ) -> None:
        self._do, self._peers, self._tickets = effects, peers, tickets
        self._feeding, self._loading = feeding, loading

    def forget(self, line: Line, now: float) -> None:
        """The model is not here any more; said again until it is back or its line is gone.

        1. There are others: what waits waits until it is known whether they have it.
        2. They have it: what was not given back before goes back. 3. What is left is refused.
        """
        line.removed_at = line.removed_at or now
        if self._peers.count(now) and now - line.removed_at < HEARD_AFTER_S:
            return  # 1
        for ticket in list(line.waiting.tickets):
            if self.is_others(ticket.delivery):
                self._feeding.forget(line, ticket, now)
                self._tickets.pop(ticket.id, None)
                self._do.give_back(ticket)  # 2
        self._loading.refuse_all(line, ModelNotFound(f"{line.model.name} was removed"))  # 3

    def let_go(self, lines: Iterable[Line]) -> None:
        """The node ends: what waits for models that are not in memory is left to others."""
        for line in lines:
            if line.status in ("absent", "loading"):
                for ticket in line.waiting.clear():
                    self._tickets.pop(ticket.id, None)
                    self._do.give_back(ticket)

    def is_others(self, delivery: Delivery) -> bool:
        """Whether a job for a model that is not here is to go back: others have it, and it did not come back
        already."""
        return self._peers.offers(delivery.job.envelope.line) and not delivery.is_again
