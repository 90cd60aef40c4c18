"""When a gateway sends a job again that nobody has answered: pure decisions on plain facts.

A job is published again under the same id only when the queue server refused it for want of a stream, when the
connection to the server was lost before any node had claimed it, or when a node claimed it and then fell silent;
never once an answer has begun, and never beyond a share of the gateway's own traffic.
"""

from enum import Enum

import msgspec

SHARE = 0.1
"""Of all jobs, how many may be sent again."""
BURST = 200.0
"""What may be sent again before any share was earned, so that a quiet gateway can lose its queue server too."""
MOST_SAVED = 5_000.0
MOST_TRIES = 4


class Flight(msgspec.Struct):
    """What a gateway knows about one job on its way. Times are seconds of any one clock."""

    sent: bool = False
    claimed_at: float | None = None  # the last sign of life of the node that holds it
    tries: int = 0


class Verdict(Enum):
    WAIT = "wait"
    SEND = "send"
    REFUSE = "refuse"


class Budget:
    """A share of the traffic, saved up to a bound."""

    def __init__(self, share: float = SHARE, burst: float = BURST, most: float = MOST_SAVED) -> None:
        self._share, self._saved, self._most = share, burst, most

    def earn(self) -> None:
        self._saved = min(self._most, self._saved + self._share)

    def spend(self) -> bool:
        if self._saved < 1.0:
            return False
        self._saved -= 1.0
        return True


def after_reconnect(flight: Flight, started: bool, budget: Budget) -> Verdict:
    """1. Being answered. 2. Never sent: free. 3. Held by a node, which will say so. 4. By the budget."""
    if started:  # 1
        return Verdict.WAIT
    if not flight.sent:  # 2
        return Verdict.SEND
    if flight.claimed_at is not None:  # 3
        return Verdict.WAIT
    return _again(flight, budget)  # 4


def after_silence(flight: Flight, started: bool, budget: Budget, now: float, patience_s: float) -> Verdict:
    """1. In nobody's hands: its line holds it. 2. Its holder was heard. 3. Half an answer. 4. By the budget."""
    if flight.claimed_at is None:  # 1
        return Verdict.WAIT
    if now - flight.claimed_at < patience_s:  # 2
        return Verdict.WAIT
    return Verdict.REFUSE if started else _again(flight, budget)  # 3, 4


def after_no_stream(flight: Flight) -> Verdict:
    """The server never had it, so that no second answer can come of it: only the tries are bounded."""
    return Verdict.SEND if flight.tries < MOST_TRIES else Verdict.REFUSE


def _again(flight: Flight, budget: Budget) -> Verdict:
    return Verdict.SEND if flight.tries < MOST_TRIES and budget.spend() else Verdict.REFUSE
