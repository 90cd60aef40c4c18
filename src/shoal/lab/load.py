"""A load on an HTTP server from one process, and what came of it: `closed` and `open_loop`.

Raw HTTP/1.1 on asyncio, because a full client would take the cores that are being measured. Only the numbers of an
answer are kept, not its body. Both functions start an event loop of their own and return when the load is over;
they raise OSError where nothing listens when they begin, and nothing for what goes wrong later: that is counted.
`watch` tells the processor seconds so far of processes that are watched; it is asked at both ends of the window.
"""

from collections.abc import Callable, Sequence

import uvloop

from shoal.lab.closed import ClosedLoop
from shoal.lab.open_loop import OpenLoop, arrivals
from shoal.lab.record import Record
from shoal.lab.run import Answer, Request, Run, Target, quantile

__all__ = ["Answer", "Request", "Run", "Target", "closed", "open_loop", "quantile"]

PATIENCE_S = 10.0


def closed(
    target: Target,
    requests: Sequence[Request],
    connections: int,
    seconds: float,
    warm_up_s: float = 1.0,
    patience_s: float = PATIENCE_S,
    watch: Callable[[], float] | None = None,
) -> Run:
    """`connections` of them, each sending the next of `requests` (in turn, again and again) once it is answered.

    What is unanswered `patience_s` after the window counts as an error.
    """

    async def load() -> Run:
        loop = ClosedLoop(target, requests, Record(requests, watch))
        return await loop.run(connections, warm_up_s, seconds, patience_s)

    return uvloop.run(load())


def open_loop(
    target: Target,
    requests: Sequence[Request],
    rate: float,
    seconds: float,
    warm_up_s: float = 1.0,
    connections: int = 1024,
    *,
    seed: int = 1,
    even: bool = False,
    patience_s: float = PATIENCE_S,
    watch: Callable[[], float] | None = None,
) -> Run:
    """`rate` requests a second, Poisson or evenly apart, over at most `connections` connections.

    Latencies count from when a request was due to be sent, so a server that stalls is charged for all that had to
    wait meanwhile (Gil Tene's "coordinated omission").
    """

    async def load() -> Run:
        loop = OpenLoop(target, requests, Record(requests, watch), connections)
        return await loop.run(arrivals(rate, seed, even=even), warm_up_s, seconds, patience_s)

    return uvloop.run(load())
