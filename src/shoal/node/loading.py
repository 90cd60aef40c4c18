"""Which models come into memory and which go: loads, failures of loads, room made by `residency`'s word.

Part of the scheduler: it changes the state of replicas, and refuses the tickets of a model that cannot be had.
"""

from collections.abc import Iterable

from shoal.node.effects import Effects
from shoal.node.memory import Memory
from shoal.node.replica import Replica
from shoal.node.settings import Settings
from shoal.node.tickets import Ticket
from shoal.protocol.errors import ModelLoadFailed, ResourceExhausted, ShoalError

MAX_LOAD_ATTEMPTS = 5
FAILED_FOR_S = 30.0
"""How long a load that failed for good is remembered before it is tried again."""
LOAD_WITHIN_S = 180.0
"""A process that has not loaded its model by then is killed, and the load tried again."""
SHORTAGE_S = 1.0
"""How long a shortage (no memory, no file handles) that kept a model from loading is remembered."""


class Loading:
    def __init__(
        self,
        settings: Settings,
        effects: Effects,
        replicas: dict[str, Replica],
        workers: dict[int, Replica],
        tickets: dict[str, Ticket],
    ) -> None:
        self._do = effects
        self._replicas, self._workers, self._tickets = replicas, workers, tickets
        self._memory = Memory(settings.memory_bytes, replicas)
        self.closing = False
        """Set when the node ends: no model is loaded any more, a pinned one neither."""

    def load(self, replica: Replica, now: float) -> None:
        """1. Not while a failure is remembered, nor while memory is on its way back.
        2. What can never fit is refused.
        3. Others yield: they get no more windows, and go when the last is answered. Or there is room: load.
        """
        leaving = any(other.status in ("yielding", "stopping") for other in self._replicas.values())
        if self.closing or leaving or (replica.failure is not None and now < replica.failed_until):
            return  # 1
        plan = self._memory.room_for(replica, now)
        if plan.verdict == "refuse":  # 2
            replica.failure, replica.failed_until = self._memory.too_big(replica), now + SHORTAGE_S
            self.refuse_all(replica, replica.failure)
        elif plan.evict:  # 3
            self._make_way(plan.evict)
        elif plan.verdict == "load":
            replica.status, replica.launched_at = "loading", now
            replica.worker = self._do.launch(replica.model.name)
            self._workers[replica.worker] = replica
        elif plan.until is not None:
            self._do.wake_at(plan.until)

    def failed(self, replica: Replica, error: ShoalError, permanent: bool, now: float) -> None:
        """Permanent, or tried often enough: everyone who waits is told."""
        self.reset(replica)
        replica.load_attempts += 1
        if isinstance(error, ResourceExhausted):
            replica.failure, replica.failed_until = error, now + SHORTAGE_S
            self.refuse_all(replica, error)
        elif permanent or replica.load_attempts >= MAX_LOAD_ATTEMPTS:
            detail = {"error_class": type(error).__name__} | error.detail
            detail |= {"attempts": replica.load_attempts, "permanent": permanent}
            replica.failure = ModelLoadFailed(error.message, **detail)
            replica.failed_until = now + FAILED_FOR_S
            replica.load_attempts = 0
            self.refuse_all(replica, replica.failure)

    def keep_budget(self, now: float) -> None:
        """Footprints may have grown past it."""
        self._make_way(self._memory.overflow(now))

    def evict(self, replica: Replica) -> None:
        assert not replica.flying, "nothing with work in flight is evicted"
        replica.status = "stopping"
        self._do.retire(replica.worker)

    def refuse_all(self, replica: Replica, error: ShoalError) -> None:
        waiting = {ticket.id: ticket for ticket in replica.waiting.clear()}
        suspected = [suspect.ticket for suspect in replica.suspects]
        waiting |= {t.id: t for t in suspected if self._tickets.get(t.id) is t}
        replica.suspects.clear()
        for ticket in waiting.values():
            del self._tickets[ticket.id]
            self._do.refuse(ticket, error)

    def reset(self, replica: Replica) -> None:
        """Its process is gone."""
        replica.status, replica.worker = "absent", 0
        replica.flying = {}
        replica.backlog, replica.windows = 0.0, 0
        replica.sent_after.clear()
        if replica.successor is not None:
            replica.become(*replica.successor)

    def _make_way(self, names: Iterable[str]) -> None:
        for name in names:
            replica = self._replicas[name]
            replica.status = "yielding"
            if not replica.flying:
                self.evict(replica)
