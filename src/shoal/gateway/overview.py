"""The whole at a glance, for `/status`, `shoal top` and the page: what comes in, and each line over all nodes.

Pure but for what `Counts` keeps. The words are those of `protocol.status`.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from shoal.catalog import Model
from shoal.observe.rates import Rate
from shoal.protocol.errors import Cancelled
from shoal.protocol.status import LineOverview, LineStatus, ModelStatus, NodeStatus, Traffic
from shoal.queue import Depth

MOST_LISTED = 200
"""Models in `/status`, beyond those that are in memory, asked for or failed; `/v1/models` has all."""


class Counts:
    """Requests to compute that this gateway answered, refusals apart."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answered, self._refused = Rate(clock()), Rate(clock())

    def over(self, status: int) -> None:
        """Of a client that left neither is counted."""
        if status != Cancelled.status:
            (self._answered if status < 400 else self._refused).add(self._clock())

    def traffic(self, refusals: dict[str, int]) -> Traffic:
        return Traffic(
            answered_per_s=self.answered_per_s,
            refused_per_s=round(self._refused.per_second(self._clock()), 2),
            answered=int(self._answered.total),
            refused=int(self._refused.total),
            refusals=refusals,
        )

    @property
    def answered_per_s(self) -> float:
        return round(self._answered.per_second(self._clock()), 2)


def listed(
    models: Sequence[tuple[Model, ModelStatus]], depths: Mapping[str, Depth]
) -> list[tuple[Model, ModelStatus]]:
    """Of thousands that are known those with something to say, and of the others the first, in their order."""

    def has_news(model: Model, status: ModelStatus) -> bool:
        return status.state != "absent" or status.pinned or model.name in depths

    news = [has_news(*each) for each in models]
    room = MOST_LISTED - sum(news)
    quiet = itertools.islice((place for place, is_news in enumerate(news) if not is_news), max(0, room))
    shown = set(quiet)
    return [each for place, each in enumerate(models) if news[place] or place in shown]


def lines(depths: Mapping[str, Depth], nodes: Iterable[NodeStatus], now: float) -> list[LineOverview]:
    """The most pressing first: by the age of the oldest job, then by what is at work. `now` in unix seconds."""
    told: dict[str, list[LineStatus]] = {model: [] for model in depths}
    for node in nodes:
        for model, status in node.lines.items():
            told.setdefault(model, []).append(status)
    found = [_line(model, depths.get(model), of_nodes, now) for model, of_nodes in told.items()]
    return sorted(
        found, key=lambda line: (-line.oldest_s, -line.busy_share, -line.useful_tokens_per_s, line.model)
    )


def _line(model: str, depth: Depth | None, told: list[LineStatus], now: float) -> LineOverview:
    items = sum(status.items_per_s for status in told)

    def mean(value: Callable[[LineStatus], float]) -> float:
        return round(sum(value(status) * status.items_per_s for status in told) / items, 4) if items else 0.0

    at_work = [status for status in told if status.busy_share or status.jobs_in_hand]
    return LineOverview(
        model=model,
        queued_jobs=depth.jobs if depth else 0,
        queued_bytes=depth.size_bytes if depth else 0,
        oldest_s=round(max(0.0, now - depth.oldest), 3) if depth and depth.jobs else 0.0,
        nodes=len(at_work),
        jobs_in_hand=sum(status.jobs_in_hand for status in told),
        useful_tokens_per_s=round(sum(status.useful_tokens_per_s for status in told), 1),
        items_per_s=round(items, 1),
        wait_s=mean(lambda status: status.wait_s),
        busy_share=round(sum(status.busy_share for status in at_work) / len(at_work), 3) if at_work else 0.0,
        fill=mean(lambda status: status.fill),
        padding=mean(lambda status: status.padding),
        given_back=sum(status.given_back for status in told),
        redelivered=sum(status.redelivered for status in told),
        claimed_loads=sum(status.claimed_loads for status in told),
        adapters=sum(status.adapters for status in told),
    )
