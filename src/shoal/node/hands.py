"""What the scheduler wants done, done: pulls, processes, windows, answers, words to other nodes.

It decides nothing. What comes of a deed returns to the scheduler as an event; of its processes the agent hears.
"""

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec

from shoal.catalog import Model
from shoal.node import devices
from shoal.node.fetching import Files
from shoal.node.intake import opened
from shoal.node.neighbours import LEAST_SHARED_ITEMS
from shoal.node.peers import Claim, claim_key
from shoal.node.records import Records
from shoal.node.roster import Roster
from shoal.node.scheduler import Scheduler
from shoal.node.sharing import Sharing
from shoal.node.tickets import Ticket
from shoal.node.workers import Listener, Worker
from shoal.observe import log as logs
from shoal.protocol import frames
from shoal.protocol.envelope import Chunk
from shoal.protocol.errors import InternalError, ShoalError
from shoal.protocol.facts import Profile
from shoal.protocol.items import Item, Output
from shoal.queue import Bounds, Delivery, Queue
from shoal.queue.board import Board
from shoal.runtimes.turns import Turns

log = logging.getLogger("shoal.node")
PARKED_PULL_S = 30.0
STRANGE_S = 0.2
"""How long a job is kept whose adapter this node does not know, before another may have it."""


Look = Callable[[str], Awaitable[bool]]
"""Whether something is known by now of a name that nobody told us."""


class Hands:
    """`scheduler` and `roster` are put in once they are made."""

    scheduler: Scheduler
    roster: Roster

    def __init__(
        self,
        queue: Queue,
        board: Board | None,
        records: Records,
        owner: Listener,
        files: Files,
        look: Look,
        max_items: int,
    ) -> None:
        self._queue, self._board, self._records, self._owner = queue, board, records, owner
        self._files, self._look, self._max_items = files, look, max_items
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: set[asyncio.Task[None]] = set()  # one for each runtime process
        self._ends: dict[str, asyncio.Event] = {}  # of pulls for a device
        self._wake_at: float | None = None
        self._wake_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._sharing = Sharing(queue, self)
        self.workers: dict[int, Worker] = {}
        shared = Turns.inherited()
        self.own_turns = None if shared is not None else Turns.make(devices.cores())
        """At this machine's processor; None where somebody else looks after them, or there are none."""
        self.turns = shared or self.own_turns
        self.draining = False

    async def stop(self) -> None:
        """End the processes and all that is under way; what is in hand goes back to the queue."""
        for ticket in list(self.scheduler.tickets.values()):
            self.give_back(ticket)
        for task in list(self._tasks):
            task.cancel()
        await self._sharing.close()
        await asyncio.gather(*(worker.stop() for worker in list(self.workers.values())))
        await asyncio.gather(*self._running)
        if self.turns is not None:
            self.turns.close()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it until it ends or we do; a failure is logged."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    # effects.Effects

    def pull(self, line: str, max_jobs: int, max_bytes: int) -> None:
        if not self.draining:
            self.spawn(self._pull(line, max_jobs, max_bytes))

    def pull_any(self, device: str, wanted: Mapping[str, Bounds]) -> None:
        if not self.draining:
            self._ends[device] = asyncio.Event()
            self.spawn(self._pull_any(device, wanted, self._ends[device]))

    def pull_anew(self, device: str) -> None:
        self._ends[device].set()

    def launch(self, model: str, profile: Profile) -> int:
        number = next(self._numbers)
        held = self.scheduler.lines[model].model
        load = frames.Load(model, str(held.folder), held.facts, profile)
        self.workers[number] = Worker(number, load, self._owner, self.turns, lambda: self._files.ready(held))
        self._running.add(task := self._loop.create_task(self.workers[number].run()))
        task.add_done_callback(self._running.discard)
        return number

    def retire(self, worker: int) -> None:
        self.spawn(self.workers[worker].stop())

    def kill(self, worker: int) -> None:
        self.workers[worker].kill()

    def send(self, worker: int, keys: list[int], items: list[Item]) -> None:
        flying = self.scheduler.workers[worker].flying
        flights = [flying[key] for key in keys]
        self.workers[worker].send(keys, items, [flight.ticket.id for flight in flights])
        self._records.sent(flights, time.time())

    def take_adapter(self, worker: int, adapter: Model) -> None:
        self.spawn(self._take_adapter(worker, adapter))

    def drop_adapter(self, worker: int, digest: str) -> None:
        if worker in self.workers:
            self.workers[worker].drop_adapter(digest)

    def cancel(self, worker: int, keys: list[int]) -> None:
        self.workers[worker].cancel(keys)

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
        self._records.answered(ticket, chunk, began, time.time())

    def refuse(self, ticket: Ticket, error: ShoalError) -> None:
        if error.status in (502, 503):
            told = logs.fields(request=ticket.id, model=ticket.model.name, reason=error.message)
            log.warning("a request was refused", extra=told)
        chunk = ticket.refusal(error)
        self._close(ticket, chunk)
        self._records.refused(ticket, error, chunk, time.time())

    def drop(self, ticket: Ticket) -> None:
        self._records.dropped(ticket, time.time())
        self._sharing.forget(ticket)
        ticket.delivery.ack()

    def give_back(self, ticket: Ticket) -> None:
        self._records.gave_back(ticket, time.time())
        self._sharing.forget(ticket)
        ticket.delivery.give_back()

    def share(self, ticket: Ticket, indices: list[int]) -> None:
        self._sharing.share(ticket, indices)

    def ask_waiting(self, line: str, within_s: float) -> None:
        self.spawn(self._ask_waiting(line, within_s))

    def claim(self, line: str, until: float) -> None:
        if self._board is not None:
            node = self.scheduler.peers.node
            self._board.put(claim_key(line, node), msgspec.json.encode(Claim(node, time.time(), until)))

    def release(self, line: str) -> None:
        if self._board is not None:
            self._board.take_down(claim_key(line, self.scheduler.peers.node))

    def wake_at(self, when: float) -> None:
        if self._wake_at is not None and self._wake_at <= when:
            return
        if self._wake_timer is not None:
            self._wake_timer.cancel()
        self._wake_at = when
        self._wake_timer = self._loop.call_later(max(0.0, when - time.time()), self._wake)

    # sharing.Owner

    def part_answered(self, ticket: Ticket, indices: list[int], outputs: list[Output]) -> None:
        self.scheduler.part_answered(ticket, indices, outputs, time.time())

    def part_lost(self, ticket: Ticket, indices: list[int]) -> None:
        self.scheduler.part_lost(ticket, indices, time.time())

    # The rest.

    def _close(self, ticket: Ticket, chunk: Chunk) -> None:
        self._sharing.forget(ticket)
        ticket.delivery.reply(chunk)
        ticket.delivery.ack()

    async def _pull(self, line: str, max_jobs: int, max_bytes: int) -> None:
        asked = self._loop.time()
        deliveries = await self._queue.pull(line, max_jobs=max_jobs, max_bytes=max_bytes, wait_s=PARKED_PULL_S)
        tickets, waiting = await self._open(line, deliveries, asked)
        self.scheduler.pulled(line, tickets, time.time(), waiting)

    async def _pull_any(self, device: str, wanted: Mapping[str, Bounds], end: asyncio.Event) -> None:
        asked = self._loop.time()
        line, deliveries = await self._queue.pull_any(wanted, wait_s=PARKED_PULL_S, stop=end)
        tickets, waiting = await self._open(line, deliveries, asked)
        self.scheduler.pulled_any(device, line, tickets, time.time(), waiting)

    async def _open(self, line: str, deliveries: list[Delivery], asked: float) -> tuple[list[Ticket], int]:
        """As tickets; and how many other nodes have nothing to do, where that matters."""
        came = self._loop.time()
        tickets: list[Ticket] = []
        for delivery in deliveries:
            if delivery.job.envelope.line not in self.scheduler.lines and self.scheduler.parting.is_others(
                delivery
            ):
                delivery.give_back()
                continue
            began = time.time()
            envelope = delivery.job.envelope
            if envelope.model != envelope.line and not self.roster.knows_adapter(envelope.model):
                self.spawn(self._find_out(delivery))
                continue
            ticket = await opened(delivery, self.scheduler.lines, self.roster.adapter, self._max_items)
            if ticket is not None:
                self._records.took(ticket, began, time.time())
                tickets.append(ticket)
        if tickets:
            self.scheduler.took(line, came - asked, self._loop.time() - came)
        is_large = any(len(ticket.unsent) >= LEAST_SHARED_ITEMS for ticket in tickets)
        return tickets, await self._others_waiting(line) if is_large else 0

    async def _find_out(self, delivery: Delivery) -> None:
        """A gateway knows an adapter that this node has not heard of: 1. it is looked up, 2. left to a node that
        may know it, 3. refused. Nothing else waits for that."""
        name, line = delivery.job.envelope.model, delivery.job.envelope.line
        is_known = await self._look(name) and self.roster.knows_adapter(name)  # 1
        if not is_known and self.scheduler.peers.with_objects(time.time()):  # 2
            await asyncio.sleep(STRANGE_S)
            is_known = self.roster.knows_adapter(name)
            if not is_known:
                delivery.give_back()
                return
        began = time.time()
        ticket = await opened(delivery, self.scheduler.lines, self.roster.adapter, self._max_items)
        if ticket is not None:
            self._records.took(ticket, began, time.time())
            self.scheduler.came(line, ticket, time.time())

    async def _take_adapter(self, worker: int, adapter: Model) -> None:
        try:
            folder = await self._files.ready(adapter)
        except ShoalError as error:
            self._owner.on_adapter_failed(worker, adapter.digest, error)
            return
        except Exception:
            log.exception("an adapter's files cannot be had", extra=logs.fields(adapter=adapter.name))
            lost = InternalError(f"the files of {adapter.name} cannot be had; the log has the details")
            self._owner.on_adapter_failed(worker, adapter.digest, lost)
            return
        if worker in self.workers:
            self.workers[worker].take_adapter(adapter.digest, folder)
            self.scheduler.taking.told(worker, adapter.digest, time.time())

    async def _ask_waiting(self, line: str, within_s: float) -> None:
        with contextlib.suppress(ShoalError):  # the queue server is away
            if await self._queue.others_pull(line, within_s):
                self.scheduler.others_wait(line, time.time())

    async def _others_waiting(self, line: str) -> int:
        if not self.scheduler.peers.holders(line, time.time()):
            return 0
        try:
            return await self._queue.others_waiting(line)
        except ShoalError:  # the queue server is away
            return 0

    def _wake(self) -> None:
        self._wake_at = None
        self.scheduler.tick(time.time())

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a step of the node failed", exc_info=error)
