"""The node's decisions as one state machine: events come in as method calls, effects go out.

It owns every replica's state and every ticket. It reads no clock, awaits nothing and touches no process:
the caller passes `now` and an `Effects`. One model is one replica here; a replica is one process.
"""

import itertools
import math
from collections.abc import Iterable

import msgspec

from shoal.catalog import Model
from shoal.node import batching
from shoal.node.effects import Effects
from shoal.node.memory import Memory
from shoal.node.replica import Flight, Known, Replica
from shoal.node.tickets import Ticket
from shoal.protocol.errors import (
    DeadlineExceeded,
    ModelLoadFailed,
    ModelNotFound,
    ResourceExhausted,
    RuntimeCrashed,
    ShoalError,
)  # fmt: skip
from shoal.protocol.facts import Profile
from shoal.protocol.frames import Answer
from shoal.protocol.items import Item, Output

MAX_LOAD_ATTEMPTS = 5
STUCK_S = 60.0
"""A runtime that has work and says nothing for this long is killed and started anew."""
FAILED_FOR_S = 30.0
"""How long a load that failed for good is remembered before it is tried again."""
LOAD_WITHIN_S = 180.0
"""A process that has not loaded its model by then is killed, and the load tried again."""
SHORTAGE_S = 1.0
"""How long a shortage (no memory, no file handles) that kept a model from loading is remembered."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`memory_bytes` bounds the measured footprints of all runtimes together."""

    memory_bytes: int
    pinned: frozenset[str] = frozenset()


class Scheduler:
    def __init__(self, settings: Settings, effects: Effects) -> None:
        self._settings = settings
        self._do = effects
        self._keys = itertools.count(1)
        self.replicas: dict[str, Replica] = {}
        self._memory = Memory(settings.memory_bytes, self.replicas)
        self.tickets: dict[str, Ticket] = {}
        self.workers: dict[int, Replica] = {}
        self.closing = False
        """Set when the node ends: no model is loaded any more, a pinned one neither."""

    def know(self, model: Model, profile: Profile, known: Known, now: float) -> None:
        """Make sure there is a record of `model` as it is now; loads nothing unless it is pinned.

        Where the files changed, a process that holds the old ones gets no more work and goes; what waits is
        computed by the new one.
        """
        replica = self.replicas.get(model.name)
        if replica is None:
            pinned = model.name in self._settings.pinned
            self.replicas[model.name] = Replica(model, profile, known, pinned)
        elif replica.model.digest != model.digest:
            replica.successor = model, profile, known
            self._let_go(replica, now)

    def forget(self, name: str, now: float) -> None:
        """The model was removed: what waits for it is refused, and its record goes once its process has."""
        replica = self.replicas[name]
        self._refuse_all(replica, ModelNotFound(f"{name} was removed"))
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
        replica.waiting.remove(ticket)
        keys = [key for key, flight in replica.flying.items() if flight.ticket is ticket]
        for key in keys:
            del replica.flying[key]
        if keys:
            self._do.cancel(replica.worker, keys)
        self._do.drop(ticket)
        self._advance(replica, now)

    # A runtime reports.

    def answered(self, worker: int, answer: Answer, now: float) -> None:
        """Outputs came back. Keys not in flight (cancelled, or of a runtime that died) are ignored."""
        replica = self.workers.get(worker)
        if replica is None:
            return
        replica.backlog = answer.backlog
        while replica.sent_after and replica.sent_after[0][0] <= answer.seen:
            replica.sent_after.popleft()
        replica.backlog += sum(batches for _, batches in replica.sent_after)
        finished = 0
        for key, output in zip(answer.keys, answer.outputs, strict=True):
            flight = replica.flying.pop(key, None)
            if flight is not None:
                finished += self._settle(replica, flight, output, answer)
        if answer.measured is not None:
            measured = answer.measured
            if measured.items > 1 or not replica.profile.lone:  # alone, it has more than its share of the device
                replica.learner.learn(measured.tokens, measured.square, measured.seconds)
        replica.last_used = replica.last_heard = now
        replica.load_attempts = 0
        if finished > 1:
            replica.linger_until = now + batching.LINGER_S
        self._advance(replica, now)
        if not replica.busy:
            self._load_waiting(now)

    def _settle(self, replica: Replica, flight: Flight, output: Output, answer: Answer) -> bool:
        ticket = flight.ticket
        if output.tokens and not output.truncated:
            ratio = output.tokens / max(8, ticket.items[flight.index].size_bytes)
            replica.known.tokens_per_byte += 0.02 * (min(ratio, 1.0) - replica.known.tokens_per_byte)
        if answer.measured is not None:
            ticket.compute_s = max(ticket.compute_s, answer.measured.seconds)
            ticket.tokenize_s = max(ticket.tokenize_s, answer.measured.tokenize_seconds)
        if not ticket.settle(flight.index, output):
            return False
        del self.tickets[ticket.id]
        self._do.finish(ticket)
        return True

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
        """The process is ending by itself. Permanent, or tried often enough: everyone who waits is told."""
        replica = self.workers.pop(worker)
        self._reset(replica)
        replica.load_attempts += 1
        if isinstance(error, ResourceExhausted):
            replica.failure, replica.failed_until = error, now + SHORTAGE_S
            self._refuse_all(replica, error)
        elif permanent or replica.load_attempts >= MAX_LOAD_ATTEMPTS:
            detail = {"error_class": type(error).__name__} | error.detail
            detail |= {"attempts": replica.load_attempts, "permanent": permanent}
            replica.failure = ModelLoadFailed(error.message, **detail)
            replica.failed_until = now + FAILED_FOR_S
            replica.load_attempts = 0
            self._refuse_all(replica, replica.failure)
        self._advance(replica, now)
        self._load_waiting(now)

    def died(self, worker: int, now: float) -> None:
        """A runtime is gone without being asked to go.

        1. While loading: a failed attempt.
        2. An item that was the only one there at two deaths is to blame: it fails, typed. One death proves
           nothing, the process may have been killed from outside.
        3. Whatever else was in flight is suspected, and runs again, each alone, before anything else.
        """
        replica = self.workers.get(worker)
        if replica is None:
            return
        if replica.status == "loading":  # 1
            self.load_failed(worker, ModelLoadFailed("the runtime process died while loading"), False, now)
            return
        del self.workers[worker]
        flying = list(replica.flying.values())
        self._reset(replica)
        for flight in reversed(flying):
            strikes = flight.strikes + (len(flying) == 1)
            if strikes == 2:  # 2
                crashed = RuntimeCrashed("computing this item killed the runtime twice")
                if flight.ticket.settle(flight.index, Output(fault=crashed.fault())):
                    del self.tickets[flight.ticket.id]
                    self._do.finish(flight.ticket)
            else:  # 3
                suspect = Flight(flight.ticket, flight.index, suspected=True, strikes=strikes)
                replica.suspects.appendleft(suspect)
        self._advance(replica, now)
        self._load_waiting(now)

    def stopped(self, worker: int, now: float) -> None:
        """A process that was asked to stop is gone, and its memory is back."""
        replica = self.workers.pop(worker, None)
        if replica is None:
            return
        self._reset(replica)
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
        self._make_way(self._memory.overflow(now), now)

    # What follows from any of it.

    def _advance(self, replica: Replica, now: float) -> None:
        """Bring one replica as far as it can go: load it, feed it, ask the queue for more."""
        if replica.status == "absent" and (replica.waiting or replica.suspects or replica.pinned):
            self._load(replica, now)
        elif replica.status == "ready":
            self._feed(replica, now)
        elif replica.status == "yielding" and not replica.flying:
            self._evict(replica)
        if replica.status != "absent" or replica.waiting:
            self._pull(replica)

    def _load_waiting(self, now: float) -> None:
        """Memory may have become free: models that wait to be loaded ask again, the longest waiting first."""
        absent = [
            r for r in self.replicas.values() if r.status == "absent" and (r.waiting or r.suspects or r.pinned)
        ]
        for replica in sorted(absent, key=lambda r: r.waiting.oldest):
            self._advance(replica, now)

    def _load(self, replica: Replica, now: float) -> None:
        """1. Not while a failure is remembered, nor while memory is on its way back.
        2. What can never fit is refused.
        3. Others yield: they get no more windows, and go when the last is answered. Or there is room: load.
        """
        leaving = any(other.status in ("yielding", "stopping") for other in self.replicas.values())
        if self.closing or leaving or (replica.failure is not None and now < replica.failed_until):
            return  # 1
        plan = self._memory.room_for(replica, now)
        if plan.verdict == "refuse":  # 2
            replica.failure, replica.failed_until = self._memory.too_big(replica), now + SHORTAGE_S
            self._refuse_all(replica, replica.failure)
        elif plan.evict:  # 3
            self._make_way(plan.evict, now)
        elif plan.verdict == "load":
            replica.status, replica.launched_at = "loading", now
            replica.worker = self._do.launch(replica.model.name)
            self.workers[replica.worker] = replica
        elif plan.until is not None:
            self._do.wake_at(plan.until)

    def _make_way(self, names: Iterable[str], now: float) -> None:
        for name in names:
            self.replicas[name].status = "yielding"
            self._advance(self.replicas[name], now)

    def _evict(self, replica: Replica) -> None:
        assert not replica.flying, "nothing with work in flight is evicted"
        replica.status = "stopping"
        self._do.retire(replica.worker)

    def _feed(self, replica: Replica, now: float) -> None:
        if replica.suspects:
            if not replica.flying:
                self._send_suspect(replica, now)
            return
        if any(flight.suspected for flight in replica.flying.values()):
            return
        decision = batching.next_window(replica.load(), now)
        if decision.wait_until is not None:
            self._do.wake_at(decision.wait_until)
        elif decision.batches:
            self._send(replica, decision.batches, now)

    def _send_suspect(self, replica: Replica, now: float) -> None:
        while replica.suspects and not replica.flying:
            suspect = replica.suspects.popleft()
            if self.tickets.get(suspect.ticket.id) is suspect.ticket:
                self._transmit(replica, [suspect], now)
        if not replica.flying:
            self._feed(replica, now)

    def _send(self, replica: Replica, batches: float, now: float) -> None:
        profile = replica.profile
        window, late = replica.waiting.fill(
            math.ceil(batches * profile.batch_items),
            batches * profile.batch_tokens,
            replica.known.tokens_per_byte,
            now,
        )
        for ticket in late:
            self._give_up(replica, ticket)
        if window:
            flights = [Flight(ticket, index) for ticket, index in window]
            self._transmit(replica, flights, now)

    def _transmit(self, replica: Replica, window: list[Flight], now: float) -> None:
        keys = [next(self._keys) for _ in window]
        items: list[Item] = [flight.ticket.items[flight.index] for flight in window]
        if not replica.flying:
            replica.backlog = 0.0
            replica.sent_after.clear()
            replica.last_heard = now
        # Each idle stream takes a share, however thin.
        batches = max(replica.batches_in(items), min(len(items), replica.profile.streams - replica.backlog))
        replica.flying.update(zip(keys, window, strict=True))
        replica.windows += 1
        replica.sent_after.append((replica.windows, batches))
        replica.backlog += batches
        replica.sent_at = now
        self._do.send(replica.worker, keys, items)

    def _pull(self, replica: Replica) -> None:
        if replica.pulling:
            return
        items, tokens = batching.pull_size(replica.load(), replica.learner.cost.good_batch_tokens())
        if items:
            replica.pulling = True
            self._do.pull(replica.model.name, items, int(tokens / replica.known.tokens_per_byte) + 4096)

    # Ends.

    def _give_up(self, replica: Replica, ticket: Ticket) -> None:
        """Its deadline passed before all of it was sent."""
        self.tickets.pop(ticket.id, None)
        for key in [key for key, flight in replica.flying.items() if flight.ticket is ticket]:
            del replica.flying[key]
        self._do.refuse(ticket, DeadlineExceeded("the deadline passed before the work was done"))

    def _refuse_all(self, replica: Replica, error: ShoalError) -> None:
        waiting = {ticket.id: ticket for ticket in replica.waiting.clear()}
        suspected = [suspect.ticket for suspect in replica.suspects]
        waiting |= {t.id: t for t in suspected if self.tickets.get(t.id) is t}
        replica.suspects.clear()
        for ticket in waiting.values():
            del self.tickets[ticket.id]
            self._do.refuse(ticket, error)

    def _reset(self, replica: Replica) -> None:
        replica.status, replica.worker = "absent", 0
        replica.flying = {}
        replica.backlog, replica.windows = 0.0, 0
        replica.sent_after.clear()
        if replica.successor is not None:
            replica.become(*replica.successor)
