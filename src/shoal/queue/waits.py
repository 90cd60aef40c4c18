"""How long a job would wait in its line, and whether that is too long. Numbers in, a refusal out; no clock.

A job's *weight* is the size of its body, known without opening it: of requests for one model the larger take the
longer, and what every body has besides its texts stands for what every request costs. A weight is at most HEAVY
times the line's mean, because nodes serve jobs side by side: ten thousand texts in one request slow the others
down, but do not stand before them. The wait is the weight ahead over the weight that was answered a second lately.
"""

import math

import msgspec

from shoal.protocol.envelope import Priority
from shoal.protocol.errors import QueueFull, ShoalError, over_limit

HEAVY = 8.0
FEW = 8
"""Fewer jobs ahead are never too many: they may be one client's own, and say little about the line."""
MEMORY_S = 4.0
SLOT_S = 0.2
"""Answers come in bursts, a micro-batch at a time; what came is looked at once in so many seconds."""
KNOWN_S = 1.0
MEAN_OVER = 64
LONGEST_RETRY_S = 60
"""OpenAI's clients do not believe in more."""


class Wait(msgspec.Struct, frozen=True):
    """What a newcomer would find. `ahead` is a weight, `per_second` the weight answered a second, 0 if unknown."""

    jobs: int
    ahead: float
    per_second: float

    @property
    def seconds(self) -> float:
        """0 where nothing can be said: of a model that is being loaded, say."""
        return self.ahead / self.per_second if self.per_second and self.jobs >= FEW else 0.0


def refusal(line: str, wait: Wait, priority: Priority, left_s: float, max_wait_s: float) -> ShoalError | None:
    """Why a job is not to wait in `line`, or None. `left_s` is the time until its deadline.

    1. Whatever its priority, not beyond its own deadline. 2. An interactive one, not beyond `max_wait_s`.
    """
    seconds = wait.seconds
    allowed, setting = max(0.0, left_s), "X-Shoal-Timeout-Ms or --timeout"  # 1
    if priority == "interactive" and max_wait_s < allowed:
        allowed, setting = max_wait_s, "--max-wait"  # 2
    if seconds <= allowed:
        return None
    error = over_limit(
        QueueFull, f"the expected wait for {line}", seen=math.ceil(seconds * 100) / 100, limit=round(allowed, 3),
        setting=setting, unit="s",
    )  # fmt: skip
    # By then half of what is allowed has room again; to come back as soon as one job fits is to be refused again.
    error.retry_after_s = float(min(LONGEST_RETRY_S, max(1, math.ceil(seconds - allowed / 2))))
    return error


class Pace:
    """The weight that a line's answers have a second, learned only while the line is crowded.

    With few jobs there a device is not used to the full. The first answer of a crowd starts the clock, so that
    neither idleness nor the loading of a model counts; what an outage takes is forgotten within MEMORY_S or so.
    """

    __slots__ = ("_known_s", "_rate", "_since", "_weight")

    def __init__(self) -> None:
        self._rate = self._known_s = self._weight = 0.0
        self._since: float | None = None

    @property
    def per_second(self) -> float:
        return self._rate if self._known_s >= KNOWN_S else 0.0

    def over(self, weight: float, left: int, now: float) -> None:
        """A job left the line, answered (`weight`) or not (0), and `left` others have not."""
        if self._since is not None:
            self._weight += weight
            if now - self._since >= SLOT_S:
                self._learn(now - self._since)
                self._since, self._weight = now, 0.0
        if left < FEW:
            self._since = None
        elif self._since is None and weight:
            self._since, self._weight = now, 0.0

    def _learn(self, seconds: float) -> None:
        self._known_s += seconds
        share = max(1 - math.exp(-seconds / MEMORY_S), seconds / self._known_s)
        self._rate += share * (self._weight / seconds - self._rate)


class Crowd:
    """The jobs of one line that were accepted and are not over yet, lent ones included."""

    def __init__(self) -> None:
        self._weights: dict[str, tuple[Priority, float]] = {}
        self._ahead: dict[Priority, float] = {"interactive": 0.0, "batch": 0.0}
        self._jobs: dict[Priority, int] = {"interactive": 0, "batch": 0}
        self._mean = 0.0
        self._pace = Pace()

    def __len__(self) -> int:
        return len(self._weights)

    def jobs(self, priority: Priority) -> int:
        return self._jobs[priority]

    def wait(self, priority: Priority) -> Wait:
        """Of a newcomer: interactive ones go before batch ones."""
        jobs, ahead = self._jobs["interactive"], self._ahead["interactive"]
        if priority == "batch":
            jobs, ahead = len(self._weights), ahead + self._ahead["batch"]
        return Wait(jobs, ahead, self._pace.per_second)

    def add(self, job: str, priority: Priority, size_bytes: int) -> None:
        self._mean = self._mean or max(1, size_bytes)
        weight = min(max(1.0, size_bytes), HEAVY * self._mean)
        self._mean += (weight - self._mean) / MEAN_OVER
        self._weights[job] = priority, weight
        self._ahead[priority] += weight
        self._jobs[priority] += 1

    def over(self, job: str, now: float, *, answered: bool) -> None:
        """Does nothing for a job that is not here."""
        known = self._weights.pop(job, None)
        if known is None:
            return
        priority, weight = known
        self._jobs[priority] -= 1
        self._ahead[priority] = self._ahead[priority] - weight if self._jobs[priority] else 0.0
        self._pace.over(weight if answered else 0.0, len(self._weights), now)
