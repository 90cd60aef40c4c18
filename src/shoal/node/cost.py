"""What a micro-batch will cost: t = a + b·tokens + c·Σ len², learned from those that ran. Pure."""

from typing import Annotated

import msgspec
import numpy as np

LEAST_FIXED_S = 0.0005
FORGETTING = 0.998  # a drifting machine is followed within about five hundred micro-batches
_SCALE = np.array([1.0, 1e-3, 1e-6])  # features of like size keep the fit well conditioned


Price = Annotated[float, msgspec.Meta(ge=0, le=3600)]


class Cost(msgspec.Struct, frozen=True):
    """Seconds: `a` a batch, `b` a token, `c` a squared token. `seen` counts micro-batches fitted."""

    a: Price = 0.002
    b: Price = 0.00005
    c: Price = 0.0
    seen: Annotated[int, msgspec.Meta(ge=0)] = 0

    def seconds(self, tokens: float, square: float) -> float:
        return self.a + self.b * tokens + self.c * square

    def good_batch_tokens(self, multiple: float = 12.0) -> float:
        """Tokens at which a batch is 1 - 1/(multiple + 1) efficient (PULL: 9 to 18 times a/b).

        A window costs the node and its runtime LEAST_FIXED_S anyhow, also where `a` was learned to be nothing.
        """
        return multiple * max(self.a, LEAST_FIXED_S) / self.b if self.b > 0 else float("inf")


class Learner:
    """Least squares with forgetting over (tokens, square, seconds); the start value counts as a prior."""

    def __init__(self, start: Cost | None = None) -> None:
        start = start or Cost()
        self._seen = start.seen
        weight = float(min(start.seen, 200)) + 1e-3
        theta = np.array([start.a, start.b, start.c]) / _SCALE
        self._normal = np.eye(3) * weight * 1e-2
        self._target = self._normal @ theta
        self._cost = start
        self._behind = 0

    @property
    def cost(self) -> Cost:
        """As of what was learned, but for the last few micro-batches of many: to find it takes longer than to
        learn, and it is asked for with every window."""
        if self._behind > min(16, self._seen // 32):
            self._cost, self._behind = self._solve(), 0
        return self._cost

    def learn(self, tokens: int, square: int, seconds: float) -> None:
        """Take in one measured micro-batch. Nonsense (no tokens, no time) is left out."""
        if tokens <= 0 or seconds <= 0:
            return
        x = np.array([1.0, tokens, square]) * _SCALE
        # Relative error: a lone short text counts as much as a full batch.
        weight = 1.0 / seconds**2 * 1e-6
        self._normal = FORGETTING * self._normal + weight * np.outer(x, x)
        self._target = FORGETTING * self._target + weight * x * seconds
        self._seen += 1
        self._behind += 1

    def _solve(self) -> Cost:
        """Non-negative by dropping the worst offender: a negative price would make big batches free."""
        active = [0, 1, 2]
        theta = np.zeros(3)
        while active:
            ridge = np.eye(len(active)) * 1e-9
            part = np.linalg.solve(self._normal[np.ix_(active, active)] + ridge, self._target[active])
            if (part >= 0).all():
                theta[active] = part
                break
            active.pop(int(np.argmin(part)))
        a, b, c = (float(value) for value in theta * _SCALE)
        return Cost(a, b, c, self._seen)
