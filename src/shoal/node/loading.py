"""Which models come into memory and which go: loads, failures of loads, room made by `residency`'s word.

Part of the scheduler: it changes lines and their replicas, and refuses the tickets of a model that cannot be had.
"""

from collections import Counter
from collections.abc import Iterable

from shoal.node import placement, residency
from shoal.node.devices import on_device
from shoal.node.effects import Effects
from shoal.node.line import Line
from shoal.node.memory import Memory
from shoal.node.occupancy import Occupancy
from shoal.node.peers import Peers
from shoal.node.replica import Replica
from shoal.node.settings import Settings
from shoal.node.tickets import Ticket
from shoal.protocol.errors import ModelLoadFailed, ResourceExhausted, ShoalError
from shoal.protocol.facts import Profile

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
        lines: dict[str, Line],
        workers: dict[int, Replica],
        tickets: dict[str, Ticket],
        peers: Peers,
    ) -> None:
        self._do = effects
        self._devices, self._target_s = settings.devices, settings.latency_s
        self.occupancies = {device: Occupancy(device) for device in settings.devices}
        self._lines, self._workers, self._tickets = lines, workers, tickets
        self._memory = Memory(settings.memory_bytes, lines, peers)
        self.closing = False
        """Set when the node ends: no model is loaded any more, a pinned one neither."""

    def load(self, line: Line, now: float) -> None:
        """One more replica, on a device that has none.

        1. Not while a failure is remembered, nor while memory is on its way back.
        2. What can never fit is refused, unless the line has a replica to serve it.
        3. Others yield: they get no more windows, and go when the last is answered. Or there is room: load.
        """
        device = self._free_device(line)
        if self.closing or device is None or self._is_leaving() or line.has_failed(now):
            return  # 1
        plan = self._memory.room_for(line, now)
        if plan.verdict == "refuse":  # 2
            if not line.replicas:
                line.failure, line.failed_until = self._memory.too_big(line), now + SHORTAGE_S
                self.refuse_all(line, line.failure)
        elif plan.evict:  # 3
            self._make_way(plan.evict)
        elif plan.verdict == "load":
            profile = on_device(line.asked, device, self._devices)
            worker = self._do.launch(line.model.name, profile)
            self._workers[worker] = replica = Replica(
                line, worker, profile, now, self.occupancies[device], self._target_s
            )
            line.replicas.append(replica)
        elif plan.until is not None:
            self._do.wake_at(plan.until)

    def wants(self, line: Line, now: float) -> bool:
        """1. There is no replica, and one is wanted. 2. A pinned model is held by every device. 3. What waits is
        worth another, and none is on its way."""
        if not line.replicas:
            return line.wants_process  # 1
        if len(line.replicas) == len(self._devices) or line.successor is not None or line.removed_at:
            return False
        if line.pinned:
            return True  # 2
        if not line.waiting or any(replica.status != "ready" for replica in line.replicas):
            return False
        wait = placement.predicted_wait(
            line.tokens_waiting, line.learner.cost, line.profile.batch_tokens, line.streams
        )
        oldest_s = now - line.waiting.oldest
        return placement.is_worth_a_load(wait, oldest_s, line.known.load_s, self._target_s)  # 3

    @property
    def held(self) -> int:
        """Replicas here, whatever they are doing."""
        return len(self._workers)

    def under_way(self) -> int:
        """Replicas that are being loaded."""
        return sum(replica.status == "loading" for replica in self._workers.values())

    def room_for(self, line: Line, now: float) -> residency.Plan:
        """What it would take to hold one replica of the line."""
        return self._memory.room_for(line, now)

    def loaded(self, replica: Replica, profile: Profile, seconds: float, footprint: int, now: float) -> None:
        line = replica.line
        replica.status, replica.profile = "ready", profile
        replica.loaded_at = replica.last_used = line.last_used = now
        line.profile, line.failure = profile, None
        line.known.load_s, line.known.footprint_bytes = seconds, footprint

    def failed(self, replica: Replica, error: ShoalError, permanent: bool, now: float) -> None:
        """Permanent, or tried often enough: everyone who waits is told, unless others serve them."""
        self.gone(replica, now)
        line = replica.line
        line.load_attempts += 1
        if isinstance(error, ResourceExhausted):
            line.failure, line.failed_until = error, now + SHORTAGE_S
        elif permanent or line.load_attempts >= MAX_LOAD_ATTEMPTS:
            detail = {"error_class": type(error).__name__} | error.detail
            detail |= {"attempts": line.load_attempts, "permanent": permanent}
            line.failure = ModelLoadFailed(error.message, **detail)
            line.failed_until = now + FAILED_FOR_S
            line.load_attempts = 0
        if line.has_failed(now) and line.failure and not line.replicas:
            self.refuse_all(line, line.failure)

    def keep_budget(self, now: float) -> None:
        """Footprints may have grown past it."""
        self._make_way(self._memory.overflow(now))

    def let_go(self, line: Line) -> None:
        """Its processes get no more work, and each goes when its last item is answered."""
        for replica in line.ready:
            self._yield(replica)

    def evict(self, replica: Replica) -> None:
        assert not replica.flying, "nothing with work in flight is evicted"
        replica.status = "stopping"
        self._do.retire(replica.worker)

    def gone(self, replica: Replica, now: float) -> None:
        """Its process is gone."""
        self._workers.pop(replica.worker, None)
        replica.gone(now)
        line = replica.line
        line.replicas.remove(replica)
        if not line.replicas and line.successor is not None:
            line.become(*line.successor)

    def refuse_all(self, line: Line, error: ShoalError) -> None:
        waiting = {ticket.id: ticket for ticket in line.waiting.clear()}
        suspected = [suspect.ticket for suspect in line.suspects]
        waiting |= {t.id: t for t in suspected if self._tickets.get(t.id) is t}
        line.suspects.clear()
        for ticket in waiting.values():
            del self._tickets[ticket.id]
            self._do.refuse(ticket, error)

    def _is_leaving(self) -> bool:
        return any(replica.status in ("yielding", "stopping") for replica in self._workers.values())

    def _free_device(self, line: Line) -> str | None:
        """Of those without a replica of the line, the one with the fewest of others."""
        held = Counter(replica.device for replica in self._workers.values())
        taken = {replica.device for replica in line.replicas}
        free = [device for device in self._devices if device not in taken]
        return min(free, key=held.__getitem__, default=None)

    def _make_way(self, names: Iterable[str]) -> None:
        named = {replica.name: replica for replica in self._workers.values()}
        for name in names:
            self._yield(named[name])

    def _yield(self, replica: Replica) -> None:
        replica.status = "yielding"
        if not replica.flying:
            self.evict(replica)
