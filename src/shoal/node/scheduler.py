"""The node's decisions as one state machine: events come in as method calls, effects go out.

It owns every line's and every replica's state, and every ticket. It reads no clock, awaits nothing and touches no
process: the caller passes `now` and an `Effects`.
"""

from collections.abc import Collection, Sequence

from shoal.catalog import Model
from shoal.node.effects import Effects
from shoal.node.feeding import Feeding
from shoal.node.line import Known, Line
from shoal.node.loading import LOAD_WITHIN_S, Loading
from shoal.node.neighbours import Neighbours
from shoal.node.parting import Parting
from shoal.node.peers import Peers
from shoal.node.private import Private
from shoal.node.replica import Replica
from shoal.node.settings import Settings
from shoal.node.taking import Taking
from shoal.node.tickets import Ticket
from shoal.protocol.errors import ModelLoadFailed, ShoalError
from shoal.protocol.facts import Profile
from shoal.protocol.frames import Answer
from shoal.protocol.items import Output
from shoal.queue import Depth

STUCK_S = 60.0
"""A runtime that has work and says nothing for this long is killed and started anew."""


class Scheduler:
    def __init__(self, settings: Settings, effects: Effects, peers: Peers | None = None) -> None:
        self._settings = settings
        self._do = effects
        self.lines: dict[str, Line] = {}
        self.tickets: dict[str, Ticket] = {}
        self.workers: dict[int, Replica] = {}
        self._stirring: dict[Line, None] = {}  # of thousands of lines those that may want something
        self._feeding = Feeding(effects, self.tickets)
        self.peers = peers or Peers()
        self._loading = Loading(settings, effects, self.lines, self.workers, self.tickets, self.peers)
        self.taking = Taking(
            settings, effects, self.lines, self.workers, self.tickets, self._feeding, self._advance
        )
        self.parting = Parting(effects, self.peers, self._feeding, self._loading, self.tickets)
        self.neighbours = Neighbours(settings, effects, self.peers, self._feeding, self._loading, self.tickets)
        self.private = Private(effects, self.lines, self.tickets, self._advance)

    def close(self) -> None:
        """The node ends: no model is loaded any more, a pinned one neither."""
        self._loading.closing = True

    def know(self, model: Model, profile: Profile, known: Known, now: float) -> None:
        """Make sure there is a record of `model` as it is now; loads nothing unless it is pinned.

        Where the files or the settings changed, processes that have the old ones get no more work and go; what
        waits is computed by new ones.
        """
        line = self.lines.get(model.name)
        if line is None:
            pinned = model.name in self._settings.pinned
            line = self.lines[model.name] = Line(model, profile, known, pinned)
            self._stirring[line] = None
            return
        line.removed_at = 0.0
        if (line.model.digest, line.asked) != (model.digest, profile):
            line.successor = model, profile, known
            self._let_go(line, now)

    def pin(self, names: Collection[str], now: float) -> None:
        """Which models are pinned: what a pinned name means may have changed."""
        for line in self.lines.values():
            if line.pinned != (line.model.name in names):
                line.pinned = not line.pinned
                self._advance(line, now)

    def forget(self, name: str, now: float) -> None:
        """The model was removed; said again until it is back. Its record goes once nothing waits for it and its
        processes have gone."""
        line = self.lines[name]
        self.parting.forget(line, now)
        self._let_go(line, now)
        if not line.busy and not line.replicas:
            del self.lines[name]
            self._stirring.pop(line, None)

    def _let_go(self, line: Line, now: float) -> None:
        if not line.replicas and line.successor is not None:
            line.become(*line.successor)
        else:
            self._loading.let_go(line)
            self._advance(line, now)

    # Work comes in.

    def line_has_work(self, name: str, now: float, depth: Depth | None = None) -> None:
        """A hint, or the depths, say that jobs wait. A line with no record is not ours."""
        line = self.lines.get(name)
        if line is not None and line.pulling and line.replicas:
            return  # which is told of them by its pull
        if line is not None and not line.is_private:
            self._stirring[line] = None
            self.neighbours.consider(line, depth, now)
            self.neighbours.pull(line, now)
            if not line.replicas:
                self._advance(line, now)

    def claimed(self, name: str, now: float) -> None:
        """The other nodes leave the load of this line to us."""
        line = self.lines.get(name)
        if line is not None:
            self.neighbours.claimed(line, now)
            self.neighbours.pull(line, now)

    def took(self, name: str, seconds: float, open_s: float) -> None:
        """How long a pull took, and to open what it brought."""
        line = self.lines.get(name)
        if line is not None:
            self.neighbours.took(line, seconds, open_s)

    def pulled(self, name: str, tickets: Sequence[Ticket], now: float, waiting: int = 0) -> None:
        """A pull ended, with or without jobs. `waiting` other nodes have nothing to do."""
        line = self.lines.get(name)
        if line is None:
            for ticket in tickets:
                ticket.delivery.give_back()
            return
        line.pulling = False
        self._take(line, tickets, waiting, now)

    def pulled_any(self, device: str, name: str, tickets: Sequence[Ticket], now: float, waiting: int = 0) -> None:
        """A pull for all lines of a device ended, with jobs of the line `name` or without any ("")."""
        busy_with = self._loading.occupancies[device]
        busy_with.wanted = frozenset()
        line = self.lines.get(name)
        if line is not None:
            self._take(line, tickets, waiting, now)
        else:
            for ticket in tickets:
                ticket.delivery.give_back()
        self.neighbours.pull_for(busy_with, now)

    def _take(self, line: Line, tickets: Sequence[Ticket], waiting: int, now: float) -> None:
        for ticket in tickets:
            self._accept(line, ticket, waiting, now)
        if not line.wants_process:
            self.neighbours.settle_claim(line)
        self._advance(line, now)

    def came(self, name: str, ticket: Ticket, now: float) -> None:
        """One that a pull brought, and that took longer to open."""
        line = self.lines.get(name)
        if line is None:
            ticket.delivery.give_back()
        else:
            self._accept(line, ticket, 0, now)
            self._advance(line, now)

    def _accept(self, line: Line, ticket: Ticket, waiting: int, now: float) -> None:
        if ticket.id in self.tickets:
            self.tickets[ticket.id].delivery = ticket.delivery  # its lease ran out in our hands
        elif line.failure is not None and line.has_failed(now) and not line.replicas:
            self._do.refuse(ticket, line.failure)
        elif ticket.remaining == 0:
            self._do.finish(ticket)  # every item had its fault already: no model is loaded for it
        elif self.neighbours.belongs_elsewhere(line, now):
            self._do.give_back(ticket)
        else:
            self.tickets[ticket.id] = ticket
            self.neighbours.take_apart(line, ticket, waiting, now)
            line.waiting.add(ticket)

    def cancelled(self, job_id: str, now: float) -> None:
        """The asker left: what is not yet sent never is; what is in flight is forgotten."""
        ticket = self.tickets.pop(job_id, None)
        if ticket is None:
            return
        line = self.lines[ticket.model.name]
        self._feeding.forget(line, ticket, now)
        self._do.drop(ticket)
        self._advance(line, now)

    # Other nodes report.

    def part_answered(self, ticket: Ticket, indices: list[int], outputs: list[Output], now: float) -> None:
        if self.tickets.get(ticket.id) is not ticket:
            return
        for index, output in zip(indices, outputs, strict=True):
            if ticket.settle(index, output):
                self._feeding.finish(self.lines[ticket.model.name], ticket)

    def part_lost(self, ticket: Ticket, indices: list[int], now: float) -> None:
        """It was refused, or its answer cannot be had: it is computed here."""
        line = self.lines.get(ticket.model.name)
        if line is not None and self.tickets.get(ticket.id) is ticket:
            line.waiting.returned(ticket, indices)
            self._advance(line, now)

    def others_wait(self, name: str, now: float) -> None:
        line = self.lines.get(name)
        if line is not None:
            self.neighbours.others_wait(line, now)
            self._advance(line, now)

    # A runtime reports.

    def answered(self, worker: int, answer: Answer, now: float) -> None:
        replica = self.workers.get(worker)
        if replica is None:
            return
        line = replica.line
        self._feeding.answered(replica, answer, now)
        line.load_attempts = 0
        self._advance(line, now)
        if not line.busy:
            self._load_waiting(now)

    def begun(self, worker: int, now: float) -> None:
        """The files are here: the load begins now."""
        replica = self.workers.get(worker)
        if replica is not None:
            replica.launched_at = now

    def loaded(self, worker: int, profile: Profile, seconds: float, footprint: int, now: float) -> None:
        replica = self.workers[worker]
        self._loading.loaded(replica, profile, seconds, footprint, now)
        self.neighbours.settle_claim(replica.line)
        if replica.line.successor is not None:
            self._let_go(replica.line, now)
        self._advance(replica.line, now)
        self._load_waiting(now)

    def load_failed(self, worker: int, error: ShoalError, permanent: bool, now: float) -> None:
        """The process is ending by itself."""
        replica = self.workers[worker]
        self._loading.failed(replica, error, permanent, now)
        if not replica.line.wants_process:
            self.neighbours.settle_claim(replica.line)
        self._advance(replica.line, now)
        self._load_waiting(now)

    def died(self, worker: int, now: float) -> None:
        """A runtime is gone without being asked to go. While loading, that is a failed attempt."""
        replica = self.workers.get(worker)
        if replica is None:
            return
        if replica.status == "loading":
            self.load_failed(worker, ModelLoadFailed("the runtime process died while loading"), False, now)
            return
        self._loading.gone(replica, now)
        self.taking.died(replica, now)
        self._feeding.orphaned(replica.line, list(replica.flying.values()))
        self._advance(replica.line, now)
        self._load_waiting(now)

    def stopped(self, worker: int, now: float) -> None:
        """A process that was asked to stop is gone, and its memory is back."""
        replica = self.workers.get(worker)
        if replica is not None:
            self._loading.gone(replica, now)
            self._load_waiting(now)

    def measured_footprint(self, worker: int, footprint: int, now: float) -> None:
        replica = self.workers.get(worker)
        if replica is not None:
            replica.line.known.footprint_bytes = footprint
            replica.measured_at = now

    def tick(self, now: float) -> None:
        """A time asked for with `wake_at` has come."""
        for busy_with in self._loading.occupancies.values():
            self.neighbours.pull_for(busy_with, now)
        for line in list(self._stirring):
            if line.busy or (line.pinned and len(line.ready) < len(self._settings.devices)):
                self._advance(line, now)
            elif not line.take_at:
                del self._stirring[line]
            if 0 < line.take_at <= now:
                self.neighbours.consider(line, None, now)

    def check(self, now: float) -> None:
        """Once a second or so: end runtimes that are stuck, and see that the memory budget is kept."""
        for replica in list(self.workers.values()):
            stuck = replica.flying and now - replica.last_heard > STUCK_S
            stuck = stuck or self.taking.is_stuck(replica, now)
            if stuck or (replica.status == "loading" and now - replica.launched_at > LOAD_WITHIN_S):
                self._do.kill(replica.worker)
        self._stirring |= dict.fromkeys(line for line in self.lines.values() if line.busy or line.pinned)
        self.tick(now)
        for line in self.lines.values():
            if line.replicas or line.adapters_failed:
                self.taking.keep_budget(line, now)
        self._loading.keep_budget(now)

    # What follows from any of it.

    def _advance(self, line: Line, now: float) -> None:
        """Bring one line as far as it can go: load it, feed it, ask the queue for more."""
        self._stirring[line] = None
        if self._loading.wants(line, now):
            self._loading.load(line, now)
        self.taking.advance(line, now)
        self._feeding.feed(line, now)
        for replica in line.replicas:
            if replica.status == "yielding" and not replica.flying:
                self._loading.evict(replica)
        if (line.replicas or line.waiting) and not line.is_private:
            self.neighbours.watch(line, now)
            self.neighbours.pull(line, now)

    def _load_waiting(self, now: float) -> None:
        """Memory may have become free: models that wait to be loaded ask again, the longest waiting first."""
        absent = [line for line in self._stirring if not line.replicas and line.wants_process]
        for line in sorted(absent, key=lambda line: line.waiting.oldest):
            self._advance(line, now)
