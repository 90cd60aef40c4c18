"""The open loop: requests leave when a seeded schedule says, whether or not earlier ones have been answered."""

import asyncio
import random
import time
from collections import deque
from collections.abc import Iterator, Sequence

from shoal.lab.alarm import Alarm
from shoal.lab.connection import Connection, connect
from shoal.lab.record import Record
from shoal.lab.run import Request, Run, Target

OPENED_BEFORE = 8
REOPEN_S = 0.05
SENT_AT_ONCE = 32  # then answers are looked at, also where sending has fallen behind


def arrivals(rate: float, seed: int, *, even: bool) -> Iterator[float]:
    """Seconds from the beginning, ascending without end: a Poisson process, or evenly apart."""
    rng = random.Random(seed)  # noqa: S311 - a schedule, no secret
    at = 0.0
    while True:
        at += 1 / rate if even else rng.expovariate(rate)
        yield at


class OpenLoop:
    """One load on its way. Latency counts from when a request was due, also while it waits for a connection.

    Connections are opened as they are needed, up to a bound; the one used last is used first, as a pool does.
    """

    def __init__(self, target: Target, requests: Sequence[Request], record: Record, connections: int) -> None:
        self._target = target
        self._wire = [request.encode(target) for request in requests]
        self._record = record
        self._bound = connections
        self._idle: list[Connection] = []
        self._connections: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: deque[tuple[int, float]] = deque()
        self._sent = 0
        self._is_over = False

    async def run(self, due: Iterator[float], warm_up_s: float, seconds: float, patience_s: float) -> Run:
        """`due` counts from the beginning. Raises OSError where nothing listens by then."""
        self._alarm = Alarm()
        try:
            first = [connect(self._target, self) for _ in range(min(OPENED_BEFORE, self._bound))]
            self._idle = await asyncio.gather(*first)
            self._connections.update(self._idle)
            began = time.perf_counter()
            self._record.open(began + warm_up_s, seconds)
            await self._send(due, began, self._record.until + patience_s)
        finally:
            self._is_over = True
            self._alarm.close()
            for task in self._opening:
                task.cancel()
            for connection in self._connections:
                connection.close()
        left = [connection.asked for connection in self._connections if connection.asked is not None]
        return self._record.finish([*left, *self._waiting])

    async def _send(self, due: Iterator[float], began: float, patient_until: float) -> None:
        """Until the last of the window is answered: those too are answered under load."""
        for at in due:
            at += began
            now = time.perf_counter()
            if at <= now and not self._sent % SENT_AT_ONCE:
                await asyncio.sleep(0)
            if at > now:
                await self._alarm.until(at)
                now = time.perf_counter()
            if now > patient_until or (at > self._record.until and not self._record.pending):
                return
            self._record.late.append(now - at)
            place = self._sent % len(self._wire)
            self._sent += 1
            self._record.begin(at)
            self._waiting.append((place, at))
            self._serve()

    def _serve(self) -> None:
        """Requests that wait to connections that do not; then as many new connections as are still wanted."""
        while self._waiting and self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                place, began = self._waiting.popleft()
                connection.ask(self._wire[place], place, began)
        if not self._is_over:
            room = self._bound - len(self._connections) - len(self._opening)
            for _ in range(min(len(self._waiting) - len(self._opening), room)):
                task = asyncio.get_running_loop().create_task(self._open())
                self._opening.add(task)
                task.add_done_callback(self._opening.discard)

    async def _open(self) -> None:
        try:
            connection = await connect(self._target, self)
        except OSError:
            if self._waiting:
                self._record.fail(*self._waiting.popleft(), time.perf_counter(), "no connection")
            await asyncio.sleep(REOPEN_S)
            return
        self._connections.add(connection)
        self._idle.append(connection)
        self._serve()

    def answered(self, connection: Connection) -> None:
        asked = connection.asked
        assert asked is not None
        self._record.answer(connection, *asked, time.perf_counter())
        connection.asked = None
        if connection.is_open:
            self._idle.append(connection)
        else:
            self._forget(connection)
        self._serve()

    def lost(self, connection: Connection, fault: str) -> None:
        if connection.asked is not None:
            self._record.fail(*connection.asked, time.perf_counter(), fault)
        self._forget(connection)
        self._serve()

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._record.reopened += not self._is_over
