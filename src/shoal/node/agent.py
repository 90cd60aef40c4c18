"""One machine's agent: the loop between queue and runtimes. What the scheduler decides is done by `hands`.

All state is the scheduler's; everything here runs on one event loop, so nothing is locked. It knows the
queue's contract and the workers; it does not know HTTP.
"""

import asyncio
import contextlib
import logging
import time
from typing import Any

from shoal.catalog import Artifact, Model
from shoal.catalog.profiles import Profiles
from shoal.node.fetching import Files, OnDisk
from shoal.node.hands import Hands, Look
from shoal.node.measured import MeasuredStore
from shoal.node.peers import Peers
from shoal.node.records import Records
from shoal.node.roster import Models, Roster
from shoal.node.scheduler import Scheduler
from shoal.node.settings import Settings
from shoal.observe import log as logs
from shoal.observe import metrics
from shoal.protocol import frames
from shoal.protocol.errors import QueueUnavailable, ShoalError
from shoal.protocol.facts import Profile
from shoal.protocol.status import ModelStatus, NodeStatus
from shoal.queue import Depth, Queue
from shoal.queue.board import Board

log = logging.getLogger("shoal.node")
TICK_S = 1.0
SHARE_EVERY_S = 0.2
ALONE_AFTER_S = 1.0
"""A runtime has the processor to itself when no other has worked for so long."""
EXTEND_EVERY_S = 1.5
REMEMBER_EVERY_S = 60.0
REFRESH_EVERY_S = 2.0


class Agent:
    def __init__(
        self,
        queue: Queue,
        models: Models,
        settings: Settings,
        measured: MeasuredStore,
        profiles: Profiles,
        max_items: int = 10_000,
        board: Board | None = None,
        node: str = "",
        files: Files | None = None,
        look: Look | None = None,
    ) -> None:
        """`board` and the name `node` where there are others: what they hold is heard on it. `files` are of models
        that were pushed, `look` finds names that were not heard of."""
        self._queue = queue
        self._settings = settings
        self._board = board
        self._alone_for = 0.0
        self._lacking = ""
        self._is_refreshing = False
        self._loop = asyncio.get_running_loop()
        self.records = Records()
        peers = Peers(node, board.listening_s) if board is not None else Peers(node)
        self._hands = Hands(queue, board, self.records, self, files or OnDisk(), look or _nowhere, max_items)
        self._hands.scheduler = self.scheduler = Scheduler(settings, self._hands, peers)
        self._hands.roster = self._roster = Roster(models, measured, profiles, self.scheduler, settings.pinned)

    def start(self) -> None:
        """Listen to the queue and begin to load what is pinned. Raises ModelNotFound for an unknown pin."""
        for name in self._settings.pinned:
            self._roster.take_up(name)
        self._roster.refresh()
        self._queue.listen(self)
        self._hands.spawn(self._every(TICK_S, self._tick))
        self._hands.spawn(self._every(SHARE_EVERY_S, self._share_processor))
        self._hands.spawn(self._every(EXTEND_EVERY_S, self._extend_leases))
        self._hands.spawn(self._every(REMEMBER_EVERY_S, self._roster.remember))
        self._hands.spawn(self._every(REFRESH_EVERY_S, self._roster.refresh))
        if self._board is not None:
            self._hands.spawn(self._board.watch(self))
        self.scheduler.tick(time.time())

    @property
    def draining(self) -> bool:
        """It takes no more work."""
        return self._hands.draining

    def states(self) -> dict[str, ModelStatus]:
        """What each model that is known here is doing."""
        return {name: line.describe(time.time()) for name, line in self.scheduler.lines.items()}

    def states_to_tell(self) -> dict[str, ModelStatus]:
        """Of those that are pinned or not just known: of thousands a few."""
        now, lines = time.time(), self.scheduler.lines.items()
        told = ((name, line) for name, line in lines if line.replicas or line.pinned or line.has_failed(now))
        return {name: line.describe(now) for name, line in told}

    def models_here(self) -> dict[str, Model]:
        """The models and adapters that its store holds and it can be asked for, without variants; each by its
        name."""
        lines = self.scheduler.lines.items()
        models = {name: line.model for name, line in lines if not (line.model.variant or line.removed_at)}
        here = models | self._roster.adapters
        return {name: model for name, model in here.items() if not isinstance(model.card.source, Artifact)}

    def adapters_held(self) -> dict[str, int]:
        """How many LoRA adapters the replicas of each line hold."""
        lines = self.scheduler.lines.items()
        return {name: sum(len(each.shelf.held) for each in line.replicas) for name, line in lines if line.replicas}

    @property
    def places(self) -> int:
        return len(self._settings.devices)

    @property
    def memory_budget_bytes(self) -> int:
        return self._settings.memory_bytes

    def lacking(self) -> str:
        """What keeps this node from being ready, as a sentence; "" where everything pinned is in memory."""
        absent = [
            line
            for line in self.scheduler.lines.values()
            if line.pinned and line.status not in ("ready", "yielding")
        ]
        return "; ".join(
            f"{line.model.name} is {line.status}{f': {line.failure.message}' if line.failure else ''}"
            for line in absent
        )

    async def drain(self) -> None:
        """Finish every job in hand and in the queue, then end the runtimes and give their memory back."""
        while self.scheduler.tickets or await self._queue.depths():
            await asyncio.sleep(0.02)
        await self.stop()

    async def leave(self, within_s: float) -> None:
        """Take no more work, finish what was begun within `within_s`, give the rest back to the queue, and end."""
        self._hands.draining = True
        self.scheduler.close()
        await self._queue.stop_pulling()
        until = self._loop.time() + within_s
        while self.scheduler.tickets and self._loop.time() < until:
            self.scheduler.parting.let_go(self.scheduler.lines.values())
            await asyncio.sleep(0.02)
        await self.stop()

    async def stop(self) -> None:
        """End at once: what is in hand goes back to the queue."""
        self.scheduler.close()
        self._roster.remember()
        await self._hands.stop()

    # What the queue says (queue.Listener).

    def work(self, line: str, depth: Depth | None = None) -> None:
        if line not in self.scheduler.lines:
            try:
                self._roster.take_up(line)
            except ShoalError:
                return  # not ours to serve
        self.scheduler.line_has_work(line, time.time(), depth)

    def cancelled(self, job_id: str) -> None:
        self.scheduler.cancelled(job_id, time.time())

    def take_up(self, name: str) -> None:
        """Raises ModelNotFound for what is not here, ModelLoadFailed where this node has no engine for it."""
        self._roster.take_up(name)

    def names_changed(self) -> None:
        """What was pushed is other than it was: seen to once everything that came with it has been heard."""
        if not self._is_refreshing:
            self._is_refreshing = True
            self._loop.call_soon(self._refresh_names)

    def _refresh_names(self) -> None:
        self._is_refreshing = False
        self._roster.refresh()

    # What the workers say (workers.Listener).

    def on_begun(self, worker: int) -> None:
        self.scheduler.begun(worker, time.time())

    def on_loaded(self, worker: int, profile: Profile, seconds: float) -> None:
        footprint = self._hands.workers[worker].footprint_bytes()
        replica = self.scheduler.workers[worker]
        log.info(
            "model loaded",
            extra=logs.fields(
                model=replica.line.model.name, device=replica.device, runtime=profile.runtime, dtype=profile.dtype,
                seconds=round(seconds, 2), megabytes=footprint // 1_000_000,
            ),
        )  # fmt: skip
        self.scheduler.loaded(worker, profile, seconds, footprint, time.time())

    def on_load_failed(self, worker: int, error: ShoalError) -> None:
        model = self.scheduler.workers[worker].line.model.name
        log.error("model not loaded", extra=logs.fields(model=model, code=error.code, reason=error.message))
        # What the host reports lies in the model; what the system lacks may be there in a moment.
        self.scheduler.load_failed(worker, error, not error.retryable, time.time())

    def on_took_adapter(self, worker: int, digest: str, size_bytes: int, seconds: float) -> None:
        now = time.time()
        self.scheduler.taking.took(worker, digest, size_bytes, now)
        replica = self.scheduler.workers.get(worker)
        if replica is not None and (held := replica.shelf.held.get(digest)) is not None:
            log.info(
                "adapter taken",
                extra=logs.fields(
                    adapter=held.name, model=replica.line.model.name, device=replica.device,
                    seconds=round(seconds, 3), megabytes=round(size_bytes / 1e6, 1), held=len(replica.shelf.held),
                ),
            )  # fmt: skip

    def on_adapter_failed(self, worker: int, digest: str, error: ShoalError) -> None:
        replica = self.scheduler.workers.get(worker)
        if replica is None or digest not in replica.shelf.coming:
            return
        name = replica.shelf.coming[digest].name
        log.error("adapter not taken", extra=logs.fields(adapter=name, code=error.code, reason=error.message))
        self.scheduler.taking.failed(worker, digest, error, time.time())

    def on_answer(self, worker: int, answer: frames.Answer) -> None:
        self.records.ran(self.scheduler.workers[worker], answer, time.time())
        try:
            self.scheduler.answered(worker, answer, time.time())
        except Exception:
            log.exception("an answer could not be used; its runtime is ended")
            self._hands.workers[worker].kill()

    def on_exited(self, worker: int, asked: bool) -> None:
        del self._hands.workers[worker]
        if asked:
            self._roster.remember()
            self.scheduler.stopped(worker, time.time())
        else:
            metrics.RUNTIME_DEATHS.inc()
            self.scheduler.died(worker, time.time())

    # What the board says (queue.board.Reader).

    def noted(self, key: str, note: bytes | None) -> None:
        found = self.scheduler.peers.noted(key, note)
        if found is None:
            return
        outcome, line = found
        if outcome == "won":
            self.records.tally.claimed_load(line, time.time())
            self.scheduler.claimed(line, time.time())
        else:
            self._hands.release(line)

    def told(self, status: NodeStatus) -> None:
        self.scheduler.peers.told(status, time.time())

    # What is done from time to time.

    async def _tick(self) -> None:
        if (lacking := self.lacking()) != self._lacking:
            self._lacking = lacking
            log.info("not ready" if lacking else "ready", extra=logs.fields(lacking=lacking or "nothing"))
        for number, worker in list(self._hands.workers.items()):
            replica = self.scheduler.workers.get(number)
            if replica is None or not replica.may_have_grown:
                continue
            # Linux walks the process's pages for this: milliseconds that no request should wait for.
            if footprint := await asyncio.to_thread(worker.footprint_bytes):
                self.scheduler.measured_footprint(number, footprint, time.time())
        if (turns := self._hands.own_turns) is not None:
            turns.reclaim({worker.pid for worker in self._hands.workers.values()}.__contains__)
        self.scheduler.check(time.time())
        with contextlib.suppress(QueueUnavailable):  # which the queue has said already
            began = self._loop.time()
            depths = await self._queue.depths()  # two questions, one after the other
            self.scheduler.neighbours.asked((self._loop.time() - began) / 2)
            for line, depth in depths.items():
                self.work(line, depth)

    def _share_processor(self) -> None:
        if (turns := self._hands.own_turns) is not None:
            at_work = sum(bool(replica.flying) for replica in self.scheduler.workers.values())
            self._alone_for = self._alone_for + SHARE_EVERY_S if at_work <= 1 else 0.0
            turns.want_spare(self._alone_for > ALONE_AFTER_S)

    async def _extend_leases(self) -> None:
        for ticket in self.scheduler.tickets.values():
            ticket.delivery.extend()

    async def _every(self, seconds: float, act: Any) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                done = act()
                if asyncio.iscoroutine(done):
                    await done
            except Exception:
                log.exception("a periodic step of the node failed")


async def _nowhere(name: str) -> bool:
    return False
