"""The closed loop: so many connections, each sending its next request when its last is answered."""

import asyncio
import itertools
import time
from collections.abc import Sequence

from shoal.lab.connection import Connection, connect
from shoal.lab.record import Record
from shoal.lab.run import Request, Run, Target

AT_ONCE = 64  # connections opened at a time: a listen queue is short
REOPEN_S = 0.05


class ClosedLoop:
    """One load on its way. A refusal is waited out as its Retry-After says; a lost connection is opened again.

    Requests go on being sent until the last of the window is answered, so that those are answered under load too.
    """

    def __init__(self, target: Target, requests: Sequence[Request], record: Record) -> None:
        self._target = target
        self._wire = [request.encode(target) for request in requests]
        self._turn = itertools.count()
        self._record = record
        self._connections: set[Connection] = set()
        self._reopening: set[asyncio.Task[None]] = set()
        self._is_over = False

    async def run(self, connections: int, warm_up_s: float, seconds: float, patience_s: float) -> Run:
        """Raises OSError where nothing listens at the beginning."""
        try:
            for start in range(0, connections, AT_ONCE):
                some = min(AT_ONCE, connections - start)
                opened = await asyncio.gather(*(connect(self._target, self) for _ in range(some)))
                self._connections.update(connection for connection in opened if connection.is_open)
            began = time.perf_counter()
            self._record.open(began + warm_up_s, seconds)
            for connection in list(self._connections):
                self._ask(connection, began)
            await asyncio.sleep(self._record.until - time.perf_counter())
            patient_until = time.perf_counter() + patience_s
            while self._record.pending and time.perf_counter() < patient_until:
                await asyncio.sleep(0.01)
        finally:
            self._is_over = True
            for task in self._reopening:
                task.cancel()
            for connection in self._connections:
                connection.close()
        return self._record.finish([c.asked for c in self._connections if c.asked is not None])

    def answered(self, connection: Connection) -> None:
        now = time.perf_counter()
        asked = connection.asked
        assert asked is not None
        self._record.answer(connection, *asked, now)
        connection.asked = None
        wait_s = connection.reader.retry_after_s
        self._record.rest(now, wait_s)
        if not connection.is_open:
            self._reopen(connection, wait_s)
        elif wait_s:
            asyncio.get_running_loop().call_later(wait_s, self._ask_later, connection)
        else:
            self._ask(connection, now)

    def lost(self, connection: Connection, fault: str) -> None:
        if connection.asked is not None:
            self._record.fail(*connection.asked, time.perf_counter(), fault)
        self._reopen(connection, 0.0)

    def _ask_later(self, connection: Connection) -> None:
        if connection.is_open:
            self._ask(connection, time.perf_counter())

    def _ask(self, connection: Connection, now: float) -> None:
        if not self._is_over:
            place = next(self._turn) % len(self._wire)
            self._record.begin(now)
            connection.ask(self._wire[place], place, now)

    def _reopen(self, connection: Connection, wait_s: float) -> None:
        self._connections.discard(connection)
        if not self._is_over:
            self._record.reopened += 1
            task = asyncio.get_running_loop().create_task(self._open(wait_s))
            self._reopening.add(task)
            task.add_done_callback(self._reopening.discard)

    async def _open(self, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        while not self._is_over:
            began = time.perf_counter()
            try:
                connection = await connect(self._target, self)
            except OSError:
                # A request that could not even be sent; without a pause this loop would take the machine.
                self._record.begin(began)
                self._record.fail(next(self._turn) % len(self._wire), began, time.perf_counter(), "no connection")
                await asyncio.sleep(REOPEN_S)
                continue
            self._connections.add(connection)
            self._ask(connection, time.perf_counter())
            return
