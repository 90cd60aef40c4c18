"""The shared queue of a cluster: the queue contract on NATS JetStream, for gateways and nodes alike.

One memory work-queue stream holds a pool's jobs; answers go straight to the gateway that asked. This file puts
the parts together: `jetstream_asks` is a gateway's side, `jetstream_pulls` and `jetstream_held` are a node's, all
on one `jetstream_link`. The stream and its consumers are made again whenever the server has lost them.

A pool has one queue server here (several addresses are members of one NATS cluster). Bodies above the server's
max_payload are refused; parking them elsewhere belongs into `Asks.publish` and `Holdings.take`.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping

from shoal.protocol import subjects
from shoal.protocol.envelope import Job, Priority
from shoal.protocol.errors import ShoalError
from shoal.queue import Bounds, Delivery, Depth, Inbox, Limits, Listener
from shoal.queue.jetstream_any import AnyPulls
from shoal.queue.jetstream_api import Api
from shoal.queue.jetstream_asks import SWEEP_EVERY_S, Asks
from shoal.queue.jetstream_auth import Login
from shoal.queue.jetstream_bells import Bells
from shoal.queue.jetstream_board import JetStreamBoard
from shoal.queue.jetstream_clock import Clock
from shoal.queue.jetstream_depths import Depths
from shoal.queue.jetstream_held import BEAT_EVERY_S, Holdings
from shoal.queue.jetstream_link import Link
from shoal.queue.jetstream_pulls import Pulls

log = logging.getLogger("shoal.queue")
CONNECT_WITHIN_S = 10.0


class JetStreamQueue:
    def __init__(
        self, link: Link, pool: str, limits: Limits, clock: Callable[[], float], *, may_change: bool
    ) -> None:
        name = secrets.token_hex(8)
        self._link, self._pool, self._clock = link, pool, clock
        told = Clock(clock)
        self._api = Api(link, pool, limits, told, may_change=may_change)
        self._asks = Asks(link, self._api, pool, limits, name, told)
        self._held = Holdings(link, limits, name, told)
        self._pulls = Pulls(link, self._api, self._held, pool, limits, name, clock)
        self._bells = Bells(link, pool, name, self._pulls.note)
        self._any = AnyPulls(link, self._api, self._pulls, self._bells, pool, name)
        self._depths = Depths(self._api, self._held)
        self.board = JetStreamBoard(link, pool)
        self._listeners: list[Listener] = []
        self._tasks: list[asyncio.Task[None]] = []
        link.on_up, link.on_down = self._up, self._down

    @classmethod
    async def connect(
        cls,
        url: str,
        pool: str = "default",
        limits: Limits | None = None,
        login: Login | None = None,
        *,
        may_change: bool = True,
        name: str = "shoal",
        within_s: float = CONNECT_WITHIN_S,
        clock: Callable[[], float] = time.time,
    ) -> "JetStreamQueue":
        """Join `pool` at the queue server `url` (nats:// or tls://, several members of one cluster by commas).

        `limits.bytes_per_line` bounds all lines of the pool together: the server counts no bytes by line. Limits
        are those of a pool that is new; one that is there gets them where we `may_change` it; a node names none.
        Raises QueueUnavailable, InvalidInput (a refused login), ResourceExhausted (the server may not keep that
        much).
        """
        link = Link(url, login, name)
        queue = cls(link, pool, limits or Limits(), clock, may_change=may_change and limits is not None)
        try:
            await link.open(within_s)
        except BaseException:
            await link.close()
            raise
        loop = asyncio.get_running_loop()
        queue._tasks = [
            loop.create_task(_every(BEAT_EVERY_S, queue._held.beat)),
            loop.create_task(_every(SWEEP_EVERY_S, queue._asks.sweep)),
        ]
        return queue

    async def publish(self, job: Job) -> Inbox:
        return self._asks.publish(job)

    def keep_apart(self, line: str) -> None:
        self._asks.apart.keep(line, self._clock())

    def refusal(self, line: str, priority: Priority, deadline: float) -> ShoalError | None:
        return self._asks.refusal(line, priority, deadline)

    async def pull(self, line: str, *, max_jobs: int, max_bytes: int, wait_s: float) -> list[Delivery]:
        return list(await self._pulls.pull(line, max_jobs, max_bytes, wait_s))

    async def pull_any(
        self, wanted: Mapping[str, Bounds], *, wait_s: float, stop: asyncio.Event
    ) -> tuple[str, list[Delivery]]:
        name, deliveries = await self._any.pull(wanted, wait_s, stop)
        return name, list(deliveries)

    async def depths(self) -> dict[str, Depth]:
        """Raises QueueUnavailable. What other nodes hold is told from what waits in the fullest lines only."""
        depths, sources = await self._depths.read()
        self._pulls.seen(sources)
        return depths

    async def others_waiting(self, line: str) -> int:
        """By the pulls of interactive jobs of no class: whoever waits at all waits for these. Of those that wait
        on several lines no more is known than whether there are any."""
        info = await self._api.pulling(line, "interactive")
        parked = max(0, info.num_waiting - self._pulls.has_request(line))
        return parked + await self._bells.somebody_listens(line)

    async def others_pull(self, line: str, within_s: float) -> bool:
        """What was sent after the last job that came here counts; of a line of classes, what others tell."""
        info = await self._api.pulling(line, "interactive")
        if info.num_waiting > self._pulls.has_request(line) or self._pulls.heard_s(line) < within_s:
            return True
        if info.idle_s < within_s and info.delivered.stream_seq > self._pulls.last_place(line)[0]:
            return True
        return await self._bells.somebody_listens(line)

    def listen(self, listener: Listener) -> None:
        if not self._listeners:
            self._link.subscribe(subjects.hint(self._pool), self._on_hint)
        self._listeners.append(listener)
        self._held.listen(listener)

    @property
    def is_up(self) -> bool:
        """Whether the queue server can be reached."""
        return self._link.is_up

    async def stop_pulling(self) -> None:
        self._pulls.close()
        self._any.wake()
        await self._pulls.withdraw()
        await self._any.withdraw()

    async def close(self) -> None:
        """Give back what is held; nothing that is on its way here is left to its lease."""
        self._asks.close()
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.stop_pulling()
        self._held.give_everything_back()
        self.board.close()
        await self._link.close()

    async def _up(self) -> None:
        await self._api.ensure_stream()
        self._held.link_up(self._api.created)
        self._pulls.link_up(self._api.created)
        self._any.begin(self._api.created)
        self._asks.link_up()
        await self.board.link_up()

    def _down(self, why: str) -> None:
        self._asks.link_down()
        self._held.link_down()
        self._pulls.link_down()
        self.board.link_down()

    def _on_hint(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        job_subject = payload.decode()
        line = subjects.line_of(job_subject)
        self._pulls.note(line, (subjects.priority_of(job_subject), subjects.class_of(job_subject)))
        if self._pulls.has_parked(line):
            return
        for listener in self._listeners:
            listener.work(line)


async def _every(seconds: float, act: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            act()
        except ShoalError as error:
            log.warning("a periodic step of the queue failed: %s", error)
        except Exception:
            log.exception("a periodic step of the queue failed")
