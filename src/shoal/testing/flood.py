"""More requests than a server can answer, from one thread that takes little of the cores it is measured on.

Bare sockets and epoll (Linux): a fraction of what an event loop takes for an answer. It knows answers of a known
length only, and sends up to a millisecond late, which counts as latency. For all else there is shoal.lab.load.
"""

import contextlib
import itertools
import random
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec

from shoal.lab.run import quantile

Event = tuple[float, Callable[[], object]]
"""When, in seconds of the window, and what is done then."""
AT_MOST = 262_144


class Flooded(msgspec.Struct, frozen=True):
    """What came in the window. `statuses` counts answers; "lost" are connections that ended instead.

    `latencies` of the good ones ascend, in seconds from when each was due; `good_at` is when they came. 99 of 100
    requests left less than `late_s` late.
    """

    seconds: float
    statuses: dict[str, int]
    without_retry_after: int
    retry_after_s: list[int]
    latencies: list[float]
    good_at: list[float]
    late_s: float
    own_cpu_s: float

    @property
    def good_per_second(self) -> float:
        return self.statuses.get("200", 0) / self.seconds

    @property
    def refused(self) -> int:
        return self.statuses.get("429", 0) + self.statuses.get("503", 0)

    @property
    def answers(self) -> int:
        return sum(self.statuses.values())

    def percentile(self, share: float) -> float:
        return quantile(self.latencies, share)

    def longest_gap_s(self, since: float) -> float:
        """Between good answers, from `since` on, in seconds of the window."""
        times = [since, *(at for at in self.good_at if at >= since), self.seconds]
        return max(after - before for before, after in itertools.pairwise(times))


class Flood:
    """`connections` kept open to a server on this machine. `good` is told the place of each request that was
    answered well, and the answer with its head. `close` it.
    """

    def __init__(
        self,
        port: int,
        requests: Sequence[bytes],
        connections: int,
        good: Callable[[int, bytes], object] | None = None,
    ) -> None:
        self._port, self._requests, self._good = port, requests, good
        self._turn = itertools.cycle(range(len(requests)))
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._asked: dict[int, tuple[int, float]] = {}  # what waits for an answer: its place, when it was due
        self._parts: dict[int, bytes] = {}
        self._idle: list[int] = []
        for _ in range(connections):
            self._open()

    def run(self, rate: float, seconds: float, warm_up_s: float = 0.0, events: Sequence[Event] = ()) -> Flooded:
        """A Poisson process of `rate` requests a second; 0 keeps every connection busy instead."""
        notes = _Notes(time.perf_counter() + warm_up_s, seconds)
        waiting = sorted(events, key=lambda event: event[0])
        due = _arrivals(rate, time.perf_counter())
        at = next(due)
        while (now := time.perf_counter()) < notes.until:
            notes.mark(now)
            if waiting and now >= notes.since + waiting[0][0]:
                waiting.pop(0)[1]()
            while at <= now and self._idle:
                self._send(self._idle.pop(), at if rate else now)
                if rate:
                    notes.late.append(now - at)
                at = next(due)
            self._receive(max(0.0, at - now) if self._idle else 0.05, notes)
        notes.mark(time.perf_counter())
        return notes.finish()

    def ask(self, patience_s: float = 30.0) -> float:
        """Seconds to one good answer, with nothing else on its way here; endless for any other."""
        notes = _Notes(time.perf_counter(), 2 * patience_s)
        self._send(self._idle.pop(), time.perf_counter())
        while self._asked and time.perf_counter() < notes.since + patience_s:
            self._receive(patience_s, notes)
        found = notes.finish()
        return found.latencies[0] if found.latencies else float("inf")

    def finish(self, patience_s: float = 30.0) -> int:
        """Wait for what is still to come; how many answers did not."""
        notes = _Notes(0.0, 0.0)
        until = time.perf_counter() + patience_s
        while self._asked and time.perf_counter() < until:
            self._receive(0.05, notes)
        return len(self._asked)

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()
        self._poll.close()

    def _open(self) -> None:
        sock = socket.create_connection(("127.0.0.1", self._port), 30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        self._sockets[sock.fileno()] = sock
        self._poll.register(sock.fileno(), select.EPOLLIN)
        self._idle.append(sock.fileno())

    def _send(self, number: int, began: float) -> None:
        place = next(self._turn)
        self._asked[number] = place, began
        try:
            self._sockets[number].send(self._requests[place])  # small enough for any socket's buffer
        except OSError:
            return  # lost; its end is read like any other

    def _receive(self, wait_s: float, notes: "_Notes") -> None:
        for number, _ in self._poll.poll(wait_s):
            try:
                data = self._sockets[number].recv(AT_MOST)
            except OSError:
                data = b""
            if not data:
                self._lose(number, notes)
                continue
            data = self._parts.pop(number, b"") + data
            if not _is_whole(data):
                self._parts[number] = data
                continue
            if number not in self._asked:
                raise RuntimeError(f"an answer that nobody asked for: {data[:200]!r}")
            place, began = self._asked.pop(number)
            self._idle.append(number)
            notes.answer(data, began)
            if self._good is not None and data.startswith(b"HTTP/1.1 200"):
                self._good(place, data)

    def _lose(self, number: int, notes: "_Notes") -> None:
        self._parts.pop(number, None)
        if self._asked.pop(number, None) is not None:
            notes.lose()
        else:
            self._idle.remove(number)
        self._poll.unregister(number)
        self._sockets.pop(number).close()
        self._open()


@contextlib.contextmanager
def flooding(flood: Flood, rate: float) -> Iterator[threading.Event]:
    """`rate` requests a second from a thread, until the event is set or this is left."""
    over = threading.Event()

    def load() -> None:
        while not over.is_set():
            flood.run(rate, 0.1)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        yield over
    finally:
        over.set()
        thread.join()
        flood.close()


class _Notes:
    """Answers by status, in the window from `since` on."""

    def __init__(self, since: float, seconds: float) -> None:
        self.since, self.until, self._seconds = since, since + seconds, seconds
        self.late: list[float] = []
        self._statuses: Counter[str] = Counter()
        self._retry_after: list[int] = []
        self._latencies: list[float] = []
        self._good_at: list[float] = []
        self._without = 0
        self._cpu: list[float] = []

    def mark(self, now: float) -> None:
        """Keeps the processor time at its first call in the window, and at its last."""
        if now >= self.since:
            self._cpu[1:] = [time.process_time()]

    def answer(self, data: bytes, began: float) -> None:
        now = time.perf_counter()
        if not self.since <= now <= self.until:
            return
        status = data[9:12].decode("ascii")
        self._statuses[status] += 1
        if status == "200":
            self._latencies.append(now - began)
            self._good_at.append(now - self.since)
        elif (at := data.find(b"\r\nretry-after: ")) > 0:
            self._retry_after.append(int(data[at + 15 : data.index(b"\r\n", at + 15)]))
        else:
            self._without += 1

    def lose(self) -> None:
        if self.since <= time.perf_counter() <= self.until:
            self._statuses["lost"] += 1

    def finish(self) -> Flooded:
        return Flooded(
            seconds=self._seconds,
            statuses=dict(self._statuses),
            without_retry_after=self._without,
            retry_after_s=sorted(self._retry_after),
            latencies=sorted(self._latencies),
            good_at=self._good_at,
            late_s=quantile(sorted(self.late), 0.99) if self.late else 0.0,
            own_cpu_s=self._cpu[-1] - self._cpu[0] if self._cpu else 0.0,
        )


def _arrivals(rate: float, began: float) -> Iterator[float]:
    if not rate:
        yield from itertools.repeat(began)
    rng = random.Random(1)
    at = began
    while True:
        at += rng.expovariate(rate)
        yield at


def _is_whole(data: bytes) -> bool:
    end = data.find(b"\r\n\r\n")
    at = data.find(b"content-length: ", 0, max(end, 0))
    return at > 0 and len(data) >= end + 4 + int(data[at + 16 : data.index(b"\r", at)])
