"""The life of one request, written once and without I/O: attempts, waits, and when to stop trying.

A flow is a generator. It yields what is to be done (`Send`, `Sleep`), is sent what came of it (`Received`,
`ConnectionFailed`, None after a sleep) and returns its result. Both clients drive it; neither retries.
"""

import random
import time
from collections.abc import Callable, Generator, Mapping
from typing import Literal, TypeVar

import msgspec

from shoal.client.retry import backoff_s, retry_after_s
from shoal.protocol.errors import ShoalError

T = TypeVar("T")

RETRIED = frozenset({429, 503, 504})
CONNECT_TIMEOUT_S = 10.0
LOST_RETRIES = 1
"""How often a request is sent again that was on its way when the connection broke. What is asked is pure,
so repeating it is safe; a second loss may be the request's own doing."""


class Request(msgspec.Struct, frozen=True):
    """`path` begins with a slash and is already quoted. Header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str] = {}
    body: bytes = b""


class Send(msgspec.Struct, frozen=True):
    """Make one attempt. It is over after `timeout_s`, connecting included."""

    request: Request
    timeout_s: float

    @property
    def connect_timeout_s(self) -> float:
        return min(self.timeout_s, CONNECT_TIMEOUT_S)


class Sleep(msgspec.Struct, frozen=True):
    """Before another attempt, `after` what the last one came to; attempts go on for `most_s` at most."""

    seconds: float
    after: "Received | ConnectionFailed | ShoalError"
    most_s: float


class Received(msgspec.Struct, frozen=True):
    """A whole answer. Header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ConnectionFailed(msgspec.Struct, frozen=True):
    """No answer. `connect`: nothing had been sent; `lost`: something had; `timeout`: time was up."""

    stage: Literal["connect", "lost", "timeout"]
    reason: str


Outcome = Received | ConnectionFailed
Flow = Generator[Send | Sleep, Outcome | None, T]


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Where a client asks, for how long, and by which clocks (`now` monotonic, `wall` unix seconds)."""

    base_url: str
    timeout_s: float = 120.0
    connect_retry_s: float = 10.0
    now: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random


def exchange(request: Request, terms: Terms) -> Flow[Outcome]:
    """Send `request` until it is answered for good or trying again makes no sense; the last outcome.

    1. An answer other than 429, 503 and 504 is final.
    2. Those three are tried again: after their Retry-After, else after a backoff.
    3. A connection that could not be made is tried again for `connect_retry_s`, a lost one once.
    4. A wait that would not leave time for an attempt is not begun.
    """
    start = terms.now()
    lost = 0
    attempt = 0
    while True:
        left_s = terms.timeout_s - (terms.now() - start)
        outcome = yield Send(_with_deadline(request, left_s), left_s)
        assert outcome is not None, "a Send is answered with what came of it"
        attempt += 1
        wait_s = backoff_s(attempt, terms.chance())
        if isinstance(outcome, Received):
            if outcome.status not in RETRIED:
                return outcome  # 1
            wait_s = retry_after_s(outcome.headers, terms.wall(), terms.chance()) or wait_s  # 2
        elif outcome.stage == "connect":
            if terms.now() - start + wait_s > terms.connect_retry_s:
                return outcome  # 3
        elif outcome.stage == "timeout" or lost == LOST_RETRIES:
            return outcome
        else:
            lost += 1
        if terms.now() - start + wait_s >= terms.timeout_s:
            return outcome  # 4
        most_s = terms.timeout_s if isinstance(outcome, Received) else terms.connect_retry_s
        yield Sleep(wait_s, outcome, max(wait_s, most_s - (terms.now() - start)))


def once(request: Request, timeout_s: float) -> Flow[Outcome]:
    """One attempt and what came of it."""
    outcome = yield Send(request, timeout_s)
    assert outcome is not None, "a Send is answered with what came of it"
    return outcome


def _with_deadline(request: Request, left_s: float) -> Request:
    """The server gets a little less time than we wait, so that its own word on the matter still arrives."""
    told_ms = int(1000 * (left_s - min(0.5, left_s / 10)))
    headers = {**request.headers, "x-shoal-timeout-ms": str(max(told_ms, 1))}
    return msgspec.structs.replace(request, headers=headers)
