"""Which LoRA adapters come to which replicas, when something waits for them, and which go, by `adapters`' word.

Part of the scheduler: it changes the shelves of replicas, and refuses the tickets of an adapter that cannot be
had. What needs no adapter, or one that is here, is never held up by it.
"""

from collections.abc import Callable, Mapping

from shoal.catalog import Model
from shoal.node import adapters, placement
from shoal.node.effects import Effects
from shoal.node.feeding import Feeding
from shoal.node.line import Line
from shoal.node.replica import Replica
from shoal.node.settings import Settings
from shoal.node.tickets import Ticket
from shoal.protocol import sizes
from shoal.protocol.errors import ModelLoadFailed, ModelNotFound, ShoalError, over_limit

FAILED_FOR_S = 30.0
"""How long an adapter that cannot be computed is remembered before it is tried again."""
SHORTAGE_S = 1.0
"""How long what was lacking for a moment is: memory, or the store of files."""
TAKE_WITHIN_S = 120.0
"""A runtime that has not taken an adapter by then is killed, and the adapter tried again."""
MAX_DEATHS = 3
"""A runtime that died so often while it took an adapter died of that."""


class Taking:
    def __init__(
        self,
        settings: Settings,
        effects: Effects,
        lines: Mapping[str, Line],
        workers: Mapping[int, Replica],
        tickets: dict[str, Ticket],
        feeding: Feeding,
        go_on: Callable[[Line, float], None],
    ) -> None:
        """`go_on` brings a line as far as it can go, after an event."""
        self._do, self._lines, self._workers, self._tickets = effects, lines, workers, tickets
        self._feeding, self._go_on = feeding, go_on
        self._budget = settings.adapter_bytes
        self._deaths: dict[str, int] = {}

    def advance(self, line: Line, now: float) -> None:
        """See to it that what waits for an adapter gets it, the longest waited for first.

        1. It failed a moment ago: refuse what waits for it.
        2. A replica has it, or it is on its way: nothing, unless one more would be of use.
        3. Take it where there is room or least to do. While one waits for room, none is taken after it.
        """
        wanted = self._wanted(line)
        for digest in [digest for digest in line.adapters_wanted if digest not in wanted]:
            del line.adapters_wanted[digest]
        if not wanted or not line.ready:
            return
        for replica in line.ready:
            self._let_go_closed(replica)
        for digest in sorted(wanted, key=lambda digest: line.adapters_wanted.get(digest, now)):
            adapter = wanted[digest]
            failure = line.adapters_failed.get(digest)
            if failure is not None and now < failure.until:  # 1
                if not any(replica.shelf.can(digest) for replica in line.ready):
                    self._refuse(line, digest, failure.error, now)
                continue
            is_here = any(replica.shelf.has(digest) for replica in line.ready)
            if is_here and not self._is_worth_another(line, digest):  # 2
                line.adapters_wanted.pop(digest, None)
                continue
            waited_s = 0.0 if is_here else now - line.adapters_wanted.setdefault(digest, now)
            if not self._take(line, adapter, is_here, waited_s, now):  # 3
                break

    # A runtime reports.

    def told(self, worker: int, digest: str, now: float) -> None:
        """The adapter's files are there, and the runtime was told to take it."""
        replica = self._expecting(worker, digest)
        if replica is not None:
            replica.shelf.coming[digest].told_at = now

    def took(self, worker: int, digest: str, size_bytes: int, now: float) -> None:
        """It can be computed with from now on. One that is larger than all may be is let go again."""
        replica = self._expecting(worker, digest)
        if replica is None:
            return
        replica.shelf.took(digest, size_bytes, now)
        replica.line.adapters_failed.pop(digest, None)
        self._deaths.pop(digest, None)
        if size_bytes > self._budget:
            name = replica.shelf.held[digest].name
            self._drop(replica, digest)
            self._fail(replica.line, digest, name, self._too_big(name, size_bytes), FAILED_FOR_S, now)
        self._go_on(replica.line, now)

    def failed(self, worker: int, digest: str, error: ShoalError, now: float) -> None:
        """The replica is as it was before; whoever waits for the adapter is told, unless another one has it."""
        replica = self._expecting(worker, digest)
        if replica is None:
            return
        coming = replica.shelf.coming.pop(digest)
        if not error.retryable and not isinstance(error, ModelNotFound):
            detail = {"error_class": type(error).__name__} | error.detail | {"attempts": 1, "permanent": True}
            error = ModelLoadFailed(f"{coming.name} cannot be used: {error.message}", **detail)
        is_settled = isinstance(error, ModelLoadFailed)
        seconds = FAILED_FOR_S if is_settled else SHORTAGE_S
        self._fail(replica.line, digest, coming.name, error, seconds, now)
        self._go_on(replica.line, now)

    def died(self, replica: Replica, now: float) -> None:
        """Its process is gone, and every adapter in it. Nobody can tell whether one that it was taking killed it,
        until that has happened too often."""
        for digest, coming in replica.shelf.coming.items():
            self._deaths[digest] = deaths = self._deaths.get(digest, 0) + 1
            if deaths >= MAX_DEATHS:
                del self._deaths[digest]
                error = ModelLoadFailed(
                    f"{coming.name} cannot be used: the runtime died {deaths} times while it took it",
                    error_class="RuntimeCrashed", attempts=deaths, permanent=True,
                )  # fmt: skip
                self._fail(replica.line, digest, coming.name, error, FAILED_FOR_S, now)

    def is_stuck(self, replica: Replica, now: float) -> bool:
        """It was told to take an adapter, and says nothing."""
        return any(0 < coming.told_at < now - TAKE_WITHIN_S for coming in replica.shelf.coming.values())

    def keep_budget(self, line: Line, now: float) -> None:
        """Adapters may have turned out larger than their files. Failures that are long over are forgotten."""
        for digest in [d for d, failure in line.adapters_failed.items() if failure.until < now]:
            del line.adapters_failed[digest]
        for replica in line.ready:
            for digest in adapters.overflow(
                self._budget, replica.shelf, flying=replica.adapters_in_flight, wanted=self._wanted(line)
            ):
                self._drop(replica, digest)

    def named(self, adapter: Model) -> None:
        """Replicas may have its files already, under another name or from its proof."""
        for replica in self._workers.values():
            if (held := replica.shelf.held.get(adapter.digest)) is not None:
                held.name = adapter.name

    def replaced(self, old: Model, new: Model | None, now: float) -> None:
        """An adapter's files are others now, or it was removed: what is not begun is computed with the new ones,
        what is begun with the old; those are the first to go when there is nothing more to do with them."""
        for line in self._lines.values():
            if line.model.plain_name == old.card.base:
                self._replaced(line, old, new, now)
                self._go_on(line, now)

    def _replaced(self, line: Line, old: Model, new: Model | None, now: float) -> None:
        for ticket in line.waiting.of(old.digest):
            if new is not None and not ticket.is_begun(0):
                line.waiting.remove(ticket)
                ticket.use(new)
                line.waiting.add(ticket)
        if new is None and not any(replica.shelf.can(old.digest) for replica in line.ready):
            self._refuse(line, old.digest, ModelNotFound(f"{old.name} was removed"), now)
        wanted = self._wanted(line)
        for replica in line.replicas:
            held = replica.shelf.held.get(old.digest)
            if held is None:
                continue
            held.last_used = 0.0
            if old.digest not in wanted and old.digest not in replica.adapters_in_flight:
                self._drop(replica, old.digest)

    # What follows from any of it.

    def _expecting(self, worker: int, digest: str) -> Replica | None:
        """The replica, if that is still to take this adapter."""
        replica = self._workers.get(worker)
        return replica if replica is not None and digest in replica.shelf.coming else None

    def _take(self, line: Line, adapter: Model, is_here: bool, waited_s: float, now: float) -> bool:
        """Begin to take it at one replica; False where it has to wait for room."""
        digest = adapter.digest
        able = [r for r in line.ready if digest not in r.shelf.held and digest not in r.shelf.coming]
        if is_here:
            able = [replica for replica in able if replica.at_work < replica.profile.streams]
        if not able:
            return True  # where it is closed, it is let go first
        replica = min(able, key=lambda r: (r.shelf.size_bytes + adapter.size_bytes > self._budget, r.at_work))
        plan = adapters.plan(
            adapter.size_bytes, self._budget, replica.shelf, flying=replica.adapters_in_flight,
            wanted=self._wanted(line), waited_s=waited_s, now=now,
        )  # fmt: skip
        if plan.verdict == "refuse":
            too_big = self._too_big(adapter.name, adapter.size_bytes)
            self._fail(line, digest, adapter.name, too_big, FAILED_FOR_S, now)
            return True
        for other in plan.close:
            replica.shelf.held[other].closed = True
            self._let_go_closed(replica)
        if plan.verdict == "wait":
            if plan.until is not None:
                self._do.wake_at(plan.until)
            return is_here
        for other in plan.drop:
            self._drop(replica, other)
        replica.shelf.expect(digest, adapter.name, adapter.size_bytes)
        line.adapters_wanted.pop(digest, None)
        self._do.take_adapter(replica.worker, adapter)
        return True

    def _is_worth_another(self, line: Line, digest: str) -> bool:
        """A replica has nothing to do, and what waits for this adapter keeps those that have it busy for long."""
        holders = [replica for replica in line.ready if replica.shelf.can(digest)]
        if len(holders) == len(line.ready) or not holders or digest not in line.waiting.by_adapter:
            return False
        if any(digest in replica.shelf.coming for replica in line.ready):
            return False
        tokens = line.tokens_of(line.waiting.by_adapter[digest])
        streams = sum(replica.profile.streams for replica in holders)
        wait_s = placement.predicted_wait(tokens, line.learner.cost, line.profile.batch_tokens, streams)
        return wait_s >= placement.TRIGGER_S

    def _wanted(self, line: Line) -> dict[str, Model]:
        """The adapters that something waits for, by digest."""
        found = {d: count.adapter for d, count in line.waiting.by_adapter.items() if count.adapter is not None}
        for suspect in line.suspects:
            if (adapter := suspect.ticket.adapter) is not None and suspect.ticket.id in self._tickets:
                found[adapter.digest] = adapter
        return found

    def _fail(self, line: Line, digest: str, name: str, error: ShoalError, seconds: float, now: float) -> None:
        line.adapters_failed[digest] = adapters.Failure(name, error, now + seconds)
        line.adapters_wanted.pop(digest, None)
        if not any(replica.shelf.can(digest) for replica in line.ready):
            self._refuse(line, digest, error, now)

    def _refuse(self, line: Line, digest: str, error: ShoalError, now: float) -> None:
        suspected = [suspect.ticket for suspect in line.suspects if suspect.ticket.needs == digest]
        for ticket in {ticket.id: ticket for ticket in (*line.waiting.of(digest), *suspected)}.values():
            if self._tickets.pop(ticket.id, None) is ticket:
                self._feeding.forget(line, ticket, now)
                self._do.refuse(ticket, error)

    def _let_go_closed(self, replica: Replica) -> None:
        flying = replica.adapters_in_flight if any(held.closed for held in replica.shelf.held.values()) else ()
        for digest in [d for d, held in replica.shelf.held.items() if held.closed and d not in flying]:
            self._drop(replica, digest)

    def _drop(self, replica: Replica, digest: str) -> None:
        del replica.shelf.held[digest]
        self._do.drop_adapter(replica.worker, digest)

    def _too_big(self, name: str, size_bytes: int) -> ShoalError:
        error = over_limit(
            ModelLoadFailed, f"adapter {name}", seen=size_bytes, limit=self._budget,
            setting="--adapter-memory", written=sizes.in_words,
        )  # fmt: skip
        error.detail |= {"error_class": "OverBudget", "attempts": 0, "permanent": True}
        return error
