"""The node's decisions as one state machine: events come in as method calls, effects go out.

It owns every replica's state and every ticket. It reads no clock, awaits nothing and touches no process:
the caller passes `now` and an `Effects`. One model is one replica here; a replica is one process.
"""

from collections.abc import Iterable

from shoal.catalog import Model
from shoal.node import batching
from shoal.node.effects import Effects
from shoal.node.feeding import Feeding
from shoal.node.loading import LOAD_WITHIN_S, Loading
from shoal.node.replica import Known, Replica
from shoal.node.settings import Settings
from shoal.node.tickets import Ticket
from shoal.protocol.errors import ModelLoadFailed, ModelNotFound, ShoalError
from shoal.protocol.facts import Profile
from shoal.protocol.frames import Answer

STUCK_S = 60.0
"""A runtime that has work and says nothing for this long is killed and started anew."""


class Scheduler:
    def __init__(self, settings: Settings, effects: Effects) -> None:
        self._settings = settings
        self._do = effects
        self.replicas: dict[str, Replica] = {}
        self.tickets: dict[str, Ticket] = {}
        self.workers: dict[int, Replica] = {}
        self._feeding = Feeding(effects, self.tickets)
        self._loading = Loading(settings, effects, self.replicas, self.workers, self.tickets)

    def close(self) -> None:
        """The node ends: no model is loaded any more, a pinned one neither."""
        self._loading.closing = True

    def let_go_unbegun(self) -> list[Ticket]:
        """Tickets of models that are not in memory: the node ends, and others may take them up."""
        replicas = [r for r in self.replicas.values() if r.status in ("absent", "loading")]
        tickets = [ticket for replica in replicas for ticket in replica.waiting.clear()]
        for ticket in tickets:
            self.tickets.pop(ticket.id, None)
        return tickets

    def know(self, model: Model, profile: Profile, known: Known, now: float) -> None:
        """Make sure there is a record of `model` as it is now; loads nothing unless it is pinned.

        Where the files or the profile changed, a process that has the old ones gets no more work and goes; what
        waits is computed by the new one.
        """
        replica = self.replicas.get(model.name)
        if replica is None:
            pinned = model.name in self._settings.pinned
            self.replicas[model.name] = Replica(model, profile, known, pinned)
        elif (replica.model.digest, replica.asked) != (model.digest, profile):
            replica.successor = model, profile, known
            self._let_go(replica, now)

    def forget(self, name: str, now: float) -> None:
        """The model was removed: what waits for it is refused, and its record goes once its process has."""
        replica = self.replicas[name]
        self._loading.refuse_all(replica, ModelNotFound(f"{name} was removed"))
        self._let_go(replica, now)
        if replica.status == "absent":
            del self.replicas[name]

    def _let_go(self, replica: Replica, now: float) -> None:
        if replica.status == "ready":
            replica.status = "yielding"
            self._advance(replica, now)
        elif replica.status == "absent" and replica.successor is not None:
            replica.become(*replica.successor)

    # Work comes in.

    def line_has_work(self, line: str, now: float) -> None:
        """A hint, or the depths, say that jobs wait. A line with no replica record is not ours."""
        replica = self.replicas.get(line)
        if replica is not None:
            self._pull(replica)
            if replica.status == "absent":
                self._advance(replica, now)

    def pulled(self, line: str, tickets: Iterable[Ticket], now: float) -> None:
        """A pull ended, with or without jobs."""
        replica = self.replicas.get(line)
        if replica is None:
            for ticket in tickets:
                ticket.delivery.give_back()
            return
        replica.pulling = False
        for ticket in tickets:
            self._accept(replica, ticket, now)
        self._advance(replica, now)

    def _accept(self, replica: Replica, ticket: Ticket, now: float) -> None:
        if ticket.id in self.tickets:
            self.tickets[ticket.id].delivery = ticket.delivery  # its lease ran out in our hands
        elif replica.failure is not None and now < replica.failed_until:
            self._do.refuse(ticket, replica.failure)
        elif ticket.remaining == 0:
            self._do.finish(ticket)  # every item had its fault already: no model is loaded for it
        else:
            self.tickets[ticket.id] = ticket
            replica.waiting.add(ticket)

    def cancelled(self, job_id: str, now: float) -> None:
        """The asker left: what is not yet sent never is; what is in flight is forgotten."""
        ticket = self.tickets.pop(job_id, None)
        if ticket is None:
            return
        replica = self.replicas[ticket.model.name]
        self._feeding.forget(replica, ticket)
        self._do.drop(ticket)
        self._advance(replica, now)

    # A runtime reports.

    def answered(self, worker: int, answer: Answer, now: float) -> None:
        replica = self.workers.get(worker)
        if replica is None:
            return
        self._feeding.answered(replica, answer, now)
        replica.load_attempts = 0
        self._advance(replica, now)
        if not replica.busy:
            self._load_waiting(now)

    def loaded(self, worker: int, profile: Profile, seconds: float, footprint: int, now: float) -> None:
        replica = self.workers[worker]
        replica.status, replica.profile = "ready", profile
        replica.known.load_s, replica.known.footprint_bytes = seconds, footprint
        replica.loaded_at = replica.last_used = now
        replica.failure = None
        if replica.successor is not None:
            self._let_go(replica, now)
        self._advance(replica, now)
        self._load_waiting(now)

    def load_failed(self, worker: int, error: ShoalError, permanent: bool, now: float) -> None:
        """The process is ending by itself."""
        replica = self.workers.pop(worker)
        self._loading.failed(replica, error, permanent, now)
        self._advance(replica, now)
        self._load_waiting(now)

    def died(self, worker: int, now: float) -> None:
        """A runtime is gone without being asked to go. While loading, that is a failed attempt."""
        replica = self.workers.get(worker)
        if replica is None:
            return
        if replica.status == "loading":
            self.load_failed(worker, ModelLoadFailed("the runtime process died while loading"), False, now)
            return
        del self.workers[worker]
        flying = list(replica.flying.values())
        self._loading.reset(replica)
        self._feeding.orphaned(replica, flying)
        self._advance(replica, now)
        self._load_waiting(now)

    def stopped(self, worker: int, now: float) -> None:
        """A process that was asked to stop is gone, and its memory is back."""
        replica = self.workers.pop(worker, None)
        if replica is None:
            return
        self._loading.reset(replica)
        self._load_waiting(now)

    def measured_footprint(self, worker: int, footprint: int) -> None:
        replica = self.workers.get(worker)
        if replica is not None:
            replica.known.footprint_bytes = footprint

    def tick(self, now: float) -> None:
        """A time asked for with `wake_at` has come."""
        for replica in self.replicas.values():
            if replica.busy or replica.pinned:
                self._advance(replica, now)

    def check(self, now: float) -> None:
        """Once a second or so: end runtimes that are stuck, and see that the memory budget is kept."""
        for replica in self.replicas.values():
            stuck = replica.flying and now - replica.last_heard > STUCK_S
            if stuck or (replica.status == "loading" and now - replica.launched_at > LOAD_WITHIN_S):
                self._do.kill(replica.worker)
        self.tick(now)
        self._loading.keep_budget(now)

    # What follows from any of it.

    def _advance(self, replica: Replica, now: float) -> None:
        """Bring one replica as far as it can go: load it, feed it, ask the queue for more."""
        if replica.status == "absent" and (replica.waiting or replica.suspects or replica.pinned):
            self._loading.load(replica, now)
        elif replica.status == "ready":
            self._feeding.feed(replica, now)
        elif replica.status == "yielding" and not replica.flying:
            self._loading.evict(replica)
        if replica.status != "absent" or replica.waiting:
            self._pull(replica)

    def _load_waiting(self, now: float) -> None:
        """Memory may have become free: models that wait to be loaded ask again, the longest waiting first."""
        absent = [
            r for r in self.replicas.values() if r.status == "absent" and (r.waiting or r.suspects or r.pinned)
        ]
        for replica in sorted(absent, key=lambda r: r.waiting.oldest):
            self._advance(replica, now)

    def _pull(self, replica: Replica) -> None:
        if replica.pulling:
            return
        items, tokens = batching.pull_size(replica.load(), replica.learner.cost.good_batch_tokens())
        if items:
            replica.pulling = True
            self._do.pull(replica.model.name, items, int(tokens / replica.known.tokens_per_byte) + 4096)
