"""The most that is served within a latency target: an open loop at one rate after another, until two are near each
other of which one keeps the target and one does not."""

import bisect
import math
import time
from collections.abc import Callable, Sequence

import msgspec

from shoal.lab.knee import FAILED
from shoal.lab.load import Request, Run, Target, open_loop
from virtual_load import mean_tokens

NEAR = 1.05
CONNECTIONS = 4096
WARM_UP_TARGETS, WINDOW_TARGETS = 2.0, 8.0
DRAIN_TARGETS = 1.0
AGAIN = 3
WARM_SHARES = 0.2, 0.4
"""Small batches alone do not tell a device what large ones cost it."""


class Measured(msgspec.Struct, frozen=True):
    """One rate. `share` is what was offered ÷ what the devices could do at their peak; `keeps`: p99 within the
    target, and no more than a hundredth without a good answer. `over`: share later
    than the target or never answered. `cores` were used by all that was watched."""

    share: float
    rate: float
    useful_tokens_per_second: float
    p50_s: float
    p99_s: float
    failed: float
    over: float
    late_s: float
    cores: float
    own_cores: float
    keeps: bool


class Search:
    """`peak` is that of all devices together, in tokens a second; `cpu_s` watches who serves."""

    def __init__(
        self, port: int, asked: Sequence[Request], peak: float, target_s: float, cpu_s: Callable[[], float]
    ) -> None:
        self._target = Target("127.0.0.1", port)
        self._asked, self._peak, self._target_s, self._cpu_s = asked, peak, target_s, cpu_s
        self._mean = mean_tokens(asked)
        self.seen: list[Measured] = []

    def warm_up(self) -> None:
        """Some load, so that every device has learned what batches cost it."""
        for share in WARM_SHARES:
            rate = share * self._peak / self._mean
            open_loop(self._target, self._asked, rate, 4 * self._target_s, 0.0, CONNECTIONS)

    def knee(self, low: float, high: float, near: float = NEAR) -> Measured | None:
        """Between shares `low` and `high` of the peak; None where even the lowest does not keep the target.

        1. Try the middle (of the logarithms) of what is known to be kept and what is not.
        2. Where nothing is known to be kept after that, the lowest is tried: it may fail for good.
        3. End when the two are near each other.
        """
        self.warm_up()
        best: Measured | None = None
        while high / low > near:
            middle = math.sqrt(low * high)
            tried = self.at(middle)
            if tried.keeps:
                best, low = tried, middle
            else:
                high = middle
        if best is None:
            tried = self.at(low)
            best = tried if tried.keeps else None
        return best

    def at(self, share: float, windows: float = 1.0) -> Measured:
        """Once more where this process stood still meanwhile: then the rate was not what it was to be."""
        for _ in range(AGAIN):
            rate, run = self._run(share, windows)
            if run.stalled_s <= self._target_s / 2:
                break
            print(f"        the load stood still for {run.stalled_s:.1f} s; once more", flush=True)
        measured = self._judged(share, rate, run)
        self.seen.append(measured)
        print(
            f"        at {share:.3f} of the peak: p50 {measured.p50_s:.2f} s, p99 {measured.p99_s:.2f} s, "
            f"failed {measured.failed:.1%}, {measured.cores:.2f} cores and {measured.own_cores:.2f} of ours"
            f"{'' if measured.keeps else '; missed'} {run.errors or ''}",
            flush=True,
        )
        return measured

    def _run(self, share: float, windows: float) -> tuple[float, Run]:
        rate = share * self._peak / self._mean
        run = open_loop(
            self._target,
            self._asked,
            rate,
            windows * WINDOW_TARGETS * self._target_s,
            WARM_UP_TARGETS * self._target_s,
            CONNECTIONS,
            seed=len(self.seen) + 1,
            patience_s=self._target_s,
            watch=self._cpu_s,
        )
        time.sleep(DRAIN_TARGETS * self._target_s)
        return rate, run

    def _judged(self, share: float, rate: float, run: Run) -> Measured:
        answers = sum(0 <= answer.began_s <= run.seconds for answer in run.answers)
        failed = sum(run.errors.values()) / max(1, answers)
        in_time = bisect.bisect_right(run.latencies, self._target_s)
        p99_s = run.percentile(0.99)
        return Measured(
            share=share,
            rate=rate,
            useful_tokens_per_second=run.tokens_per_second,
            p50_s=run.percentile(0.5),
            p99_s=p99_s,
            failed=failed,
            over=1 - in_time / max(1, answers),
            late_s=run.late_s,
            cores=run.cpu_s / run.seconds,
            own_cores=run.own_cpu_s / run.seconds,
            keeps=p99_s <= self._target_s and failed <= FAILED,
        )
