"""What a load is made of and what comes back: target, request, answer, run. Plain data; who sends is load.py's."""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import msgspec

UNANSWERED = "unanswered"


class Target(msgspec.Struct, frozen=True):
    """Who is loaded. `headers` go with every request: an authorization, say."""

    host: str
    port: int
    headers: tuple[tuple[str, str], ...] = ()
    tls: bool = False


class Request(msgspec.Struct, frozen=True):
    """One POST. `items` and `tokens` are what a good answer to it is worth."""

    path: str
    body: bytes
    content_type: str = "application/json"
    items: int = 1
    tokens: int = 0
    headers: tuple[tuple[str, str], ...] = ()

    def encode(self, target: Target) -> bytes:
        """The whole request as it goes over the wire."""
        host = f"[{target.host}]" if ":" in target.host else target.host
        lines = [f"POST {self.path} HTTP/1.1", f"host: {host}:{target.port}"]
        lines += [f"content-type: {self.content_type}", f"content-length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in (*target.headers, *self.headers)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


class Answer(msgspec.Struct, frozen=True, gc=False):
    """One answer, or the lack of one.

    Times are in seconds. `began_s` counts from the beginning of the window that is measured (negative: warm-up);
    in an open loop it is when the request was due, not when it was sent. `status` is 0 and `fault` says why
    where no answer came; the latency is then how long one was waited for. `first_s` is the latency of the first
    token of a stream, 0 where none was seen; `made` counts the tokens that the server says, or was seen, to make.
    """

    began_s: float
    latency_s: float
    status: int
    items: int = 1
    tokens: int = 0
    fault: str = ""
    first_s: float = 0.0
    made: int = 0
    retry_after_s: float = 0.0

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300


class Run(msgspec.Struct, frozen=True, dict=True):
    """One load, measured for `seconds` after its warm-up.

    `answers` are all whose request began or whose answer came in that window. Rates count the good answers that
    came in it; latencies are those of requests that began in it, however late they were answered: a server cannot
    look quick by leaving the slow ones for later. What was never answered counts with the time it waited.
    `late_s` is how late requests left the generator, the 99th of 100: where it is not far below the latencies, the
    generator itself was the limit. `reopened` counts connections that had to be opened again.
    """

    seconds: float
    answers: list[Answer]
    late_s: float = 0.0
    stalled_s: float = 0.0
    """The longest time for which the generator stood still; beyond some 0.1 s its figures are worth little."""
    rested_s: float = 0.0
    """How long connections sent nothing because a refusal had asked for that, all of them together."""
    reopened: int = 0
    cpu_s: float = 0.0
    """Processor seconds of the watched processes in the window."""
    own_cpu_s: float = 0.0
    """The same of the generator: near `seconds`, it was the limit."""
    complaint: str = ""
    """The first refusal in the server's own words."""

    @cached_property
    def done(self) -> list[Answer]:
        """The good answers that came in the window."""
        return [a for a in self.answers if a.is_good and 0 <= a.began_s + a.latency_s <= self.seconds]

    @property
    def per_second(self) -> float:
        return len(self.done) / self.seconds

    @property
    def items_per_second(self) -> float:
        return sum(a.items for a in self.done) / self.seconds

    @property
    def tokens_per_second(self) -> float:
        return sum(a.tokens for a in self.done) / self.seconds

    @property
    def made_per_second(self) -> float:
        """Tokens that were generated, of chat."""
        return sum(a.made for a in self.done) / self.seconds

    @cached_property
    def latencies(self) -> list[float]:
        """Seconds, ascending, of good answers and of those that never came."""
        began = (a for a in self.answers if 0 <= a.began_s <= self.seconds)
        return sorted(a.latency_s for a in began if a.is_good or a.fault == UNANSWERED)

    def percentile(self, share: float) -> float:
        """Seconds within which `share` (0.5, 0.99) of the requests were answered; NaN where none was."""
        return quantile(self.latencies, share)

    @property
    def errors(self) -> dict[str, int]:
        """How many requests failed, by status ("429") or by what came instead of an answer ("connection lost")."""
        began = (a for a in self.answers if 0 <= a.began_s <= self.seconds and not a.is_good)
        return dict(Counter(a.fault or str(a.status) for a in began))


def quantile(ascending: Sequence[float], share: float) -> float:
    """The value below which `share` of an ascending sequence lies, between neighbours by a straight line."""
    if not ascending:
        return float("nan")
    place = share * (len(ascending) - 1)
    below = int(place)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (ascending[above] - ascending[below]) * (place - below)
