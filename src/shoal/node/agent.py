"""One machine's agent: the loop between queue and runtimes. It performs what the scheduler decides.

All state is the scheduler's; everything here runs on one event loop, so nothing is locked. It knows the
queue's contract and the workers; it does not know HTTP.
"""

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Coroutine
from typing import Any

from shoal.catalog import Model
from shoal.catalog.profiles import Profiles
from shoal.node import devices
from shoal.node.intake import opened
from shoal.node.measured import MeasuredStore
from shoal.node.records import Records
from shoal.node.roster import Models, Roster
from shoal.node.scheduler import Scheduler
from shoal.node.settings import Settings
from shoal.node.tickets import Ticket
from shoal.node.workers import Worker
from shoal.observe import log as logs
from shoal.observe import metrics
from shoal.protocol import frames
from shoal.protocol.envelope import Chunk
from shoal.protocol.errors import InternalError, QueueUnavailable, ShoalError
from shoal.protocol.facts import Profile
from shoal.protocol.items import Item
from shoal.protocol.status import ModelStatus
from shoal.queue import Queue
from shoal.runtimes.turns import Turns

log = logging.getLogger("shoal.node")
TICK_S = 1.0
SHARE_EVERY_S = 0.2
ALONE_AFTER_S = 1.0
"""A runtime has the processor to itself when no other has worked for so long."""
EXTEND_EVERY_S = 1.5
REMEMBER_EVERY_S = 60.0
REFRESH_EVERY_S = 2.0
PARKED_PULL_S = 30.0


class Agent:
    def __init__(
        self,
        queue: Queue,
        models: Models,
        settings: Settings,
        measured: MeasuredStore,
        profiles: Profiles,
        max_items: int = 10_000,
    ) -> None:
        self._queue = queue
        self._settings = settings
        self._max_items = max_items
        self._numbers = itertools.count(1)
        self._workers: dict[int, Worker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: set[asyncio.Task[None]] = set()  # one for each runtime process
        self._turns = Turns.make(devices.cores())
        self._alone_for = 0.0
        self._lacking = ""
        self.draining = False
        self.records = Records()
        self._wake_at: float | None = None
        self._wake_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.scheduler = Scheduler(settings, self)
        self._roster = Roster(models, measured, profiles, self.scheduler)

    def start(self) -> None:
        """Listen to the queue and begin to load what is pinned. Raises ModelNotFound for an unknown pin."""
        for name in self._settings.pinned:
            self._roster.take_up(name)
        self._roster.refresh()
        self._queue.listen(self)
        self._spawn(self._every(TICK_S, self._tick))
        self._spawn(self._every(SHARE_EVERY_S, self._share_processor))
        self._spawn(self._every(EXTEND_EVERY_S, self._extend_leases))
        self._spawn(self._every(REMEMBER_EVERY_S, self._roster.remember))
        self._spawn(self._every(REFRESH_EVERY_S, self._roster.refresh))
        self.scheduler.tick(time.time())

    def states(self) -> dict[str, ModelStatus]:
        """What each model that was ever asked for is doing here."""
        return {name: line.describe(time.time()) for name, line in self.scheduler.lines.items()}

    def models_here(self) -> dict[str, Model]:
        """The models that this node can be asked for, without their variants; each by its name."""
        return {name: line.model for name, line in self.scheduler.lines.items() if not line.model.variant}

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
        self.draining = True
        self.scheduler.close()
        await self._queue.stop_pulling()
        until = self._loop.time() + within_s
        while self.scheduler.tickets and self._loop.time() < until:
            for ticket in self.scheduler.let_go_unbegun():
                self._give_back(ticket)
            await asyncio.sleep(0.02)
        await self.stop()

    async def stop(self) -> None:
        """End at once: what is in hand goes back to the queue."""
        self.scheduler.close()
        self._roster.remember()
        for ticket in list(self.scheduler.tickets.values()):
            self._give_back(ticket)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*(worker.stop() for worker in list(self._workers.values())))
        await asyncio.gather(*self._running)
        if self._turns is not None:
            self._turns.close()

    # What the queue says (queue.Listener).

    def work(self, line: str) -> None:
        if line not in self.scheduler.lines:
            try:
                self._roster.take_up(line)
            except ShoalError:
                return  # not ours to serve
        self.scheduler.line_has_work(line, time.time())

    def cancelled(self, job_id: str) -> None:
        self.scheduler.cancelled(job_id, time.time())

    # What the workers say (workers.Listener).

    def on_loaded(self, worker: int, profile: Profile, seconds: float) -> None:
        footprint = self._workers[worker].footprint_bytes()
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

    def on_answer(self, worker: int, answer: frames.Answer) -> None:
        self.records.ran(self.scheduler.workers[worker], answer, time.time())
        try:
            self.scheduler.answered(worker, answer, time.time())
        except Exception:
            log.exception("an answer could not be used; its runtime is ended")
            self._workers[worker].kill()

    def on_exited(self, worker: int, asked: bool) -> None:
        del self._workers[worker]
        if asked:
            self.scheduler.stopped(worker, time.time())
        else:
            metrics.RUNTIME_DEATHS.inc()
            self.scheduler.died(worker, time.time())

    # What the scheduler wants done (effects.Effects).

    def pull(self, line: str, max_jobs: int, max_bytes: int) -> None:
        if not self.draining:
            self._spawn(self._pull(line, max_jobs, max_bytes))

    def launch(self, model: str, profile: Profile) -> int:
        number = next(self._numbers)
        held = self.scheduler.lines[model].model
        load = frames.Load(model, str(held.folder), held.facts, profile)
        self._workers[number] = Worker(number, load, self, self._turns)
        self._running.add(task := self._loop.create_task(self._workers[number].run()))
        task.add_done_callback(self._running.discard)
        return number

    def retire(self, worker: int) -> None:
        self._roster.remember()
        self._spawn(self._workers[worker].stop())

    def kill(self, worker: int) -> None:
        self._workers[worker].kill()

    def send(self, worker: int, keys: list[int], items: list[Item]) -> None:
        flying = self.scheduler.workers[worker].flying
        flights = [flying[key] for key in keys]
        self._workers[worker].send(keys, items, [flight.ticket.id for flight in flights])
        self.records.sent(flights, time.time())

    def cancel(self, worker: int, keys: list[int]) -> None:
        self._workers[worker].cancel(keys)

    def finish(self, ticket: Ticket) -> None:
        began = time.time()
        try:
            chunk = ticket.answer()
        except ShoalError as error:
            chunk = ticket.refusal(error)
        except Exception:
            log.exception("an answer could not be encoded", extra=logs.fields(request=ticket.id))
            chunk = ticket.refusal(InternalError("the answer could not be encoded; the log has the details"))
        self._close(ticket, chunk)
        self.records.answered(ticket, chunk, began, time.time())

    def refuse(self, ticket: Ticket, error: ShoalError) -> None:
        if error.status in (502, 503):
            told = logs.fields(request=ticket.id, model=ticket.model.name, reason=error.message)
            log.warning("a request was refused", extra=told)
        chunk = ticket.refusal(error)
        self._close(ticket, chunk)
        self.records.refused(ticket, error, chunk, time.time())

    def drop(self, ticket: Ticket) -> None:
        self.records.dropped(ticket, time.time())
        ticket.delivery.ack()

    def wake_at(self, when: float) -> None:
        if self._wake_at is not None and self._wake_at <= when:
            return
        if self._wake_timer is not None:
            self._wake_timer.cancel()
        self._wake_at = when
        self._wake_timer = self._loop.call_later(max(0.0, when - time.time()), self._wake)

    # The rest of the loop.

    def _close(self, ticket: Ticket, chunk: Chunk) -> None:
        ticket.delivery.reply(chunk)
        ticket.delivery.ack()

    def _give_back(self, ticket: Ticket) -> None:
        self.records.gave_back(ticket, time.time())
        ticket.delivery.give_back()

    async def _pull(self, line: str, max_jobs: int, max_bytes: int) -> None:
        deliveries = await self._queue.pull(line, max_jobs=max_jobs, max_bytes=max_bytes, wait_s=PARKED_PULL_S)
        tickets: list[Ticket] = []
        for delivery in deliveries:
            began = time.time()
            ticket = await opened(delivery, self.scheduler.lines, self._max_items)
            if ticket is not None:
                self.records.took(ticket, began, time.time())
                tickets.append(ticket)
        self.scheduler.pulled(line, tickets, time.time())

    def _wake(self) -> None:
        self._wake_at = None
        self.scheduler.tick(time.time())

    async def _tick(self) -> None:
        if (lacking := self.lacking()) != self._lacking:
            self._lacking = lacking
            log.info("not ready" if lacking else "ready", extra=logs.fields(lacking=lacking or "nothing"))
        for number, worker in list(self._workers.items()):
            # Linux walks the process's pages for this: milliseconds that no request should wait for.
            if footprint := await asyncio.to_thread(worker.footprint_bytes):
                self.scheduler.measured_footprint(number, footprint)
        if self._turns is not None:
            self._turns.reclaim([worker.pid for worker in self._workers.values()])
        self.scheduler.check(time.time())
        with contextlib.suppress(QueueUnavailable):  # which the queue has said already
            for line in await self._queue.depths():
                self.work(line)

    def _share_processor(self) -> None:
        if self._turns is not None:
            at_work = sum(bool(replica.flying) for replica in self.scheduler.workers.values())
            self._alone_for = self._alone_for + SHARE_EVERY_S if at_work <= 1 else 0.0
            self._turns.want_spare(self._alone_for > ALONE_AFTER_S)

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

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a step of the node failed", exc_info=error)
