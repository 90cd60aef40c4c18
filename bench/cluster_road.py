"""The rows of bench/cluster.py about what the road itself costs. Nothing is dilated here; the device is quick."""

import argparse
import statistics
import tempfile
from pathlib import Path

import msgspec

from bars import RESULTS, Bars
from cost import echoing
from loads import LOADS
from nats_echo import answering, round_trip_s
from processes import Fleet, cluster, servers
from road_models import MINILM
from shoal.catalog import Card, Virtual
from shoal.catalog.store import Store
from shoal.lab.load import Request, Run, Target, closed, open_loop
from shoal.lab.processes import Processes
from sides import MODEL, ROUTE, requests, speed_of

QUICK = "bench/quick"
RATE = 3000.0
OFFERED = 1.05
"""Times that rate, so that it is reached."""
BODY_BYTES = 200
CONNECTIONS = 64
CARD = Card(
    name=QUICK,
    source=Virtual(seconds=0.0005, seconds_per_token=1e-6, serial=True, batch_items=512, batch_tokens=16_384),
    facts={"tasks": ["encode"], "family": "virtual", "max_tokens": 512, "dims": 8, "normalize": True},
)


class Spent(msgspec.Struct, frozen=True):
    """Requests a second, and microseconds of processor time a request, by role."""

    rate: float
    us: dict[str, float]


class RoadCost:
    def __init__(self, bars: Bars, arguments: argparse.Namespace) -> None:
        self._bars, self._seconds, self._pairs = bars, arguments.seconds, arguments.pairs
        self._folder = tempfile.TemporaryDirectory(prefix="shoal-bench-")
        self._home = Path(self._folder.name)
        Store(self._home).add(CARD)
        self._asked = [body_of(BODY_BYTES, number) for number in range(512)]

    def cost(self) -> None:
        """The same rate for both, so that neither gains by reading more at once."""
        with cluster(self._home, 1, [QUICK]) as fleet, echoing() as echo:
            alone = {"echo": [echo.pid]}
            pairs = [
                (self._spent(fleet.port, fleet.pids), self._spent(echo.port, alone)) for _ in range(self._pairs)
            ]
        rate = statistics.median(ours.rate for ours, _ in pairs)
        self._bars.check("requests/s at which processor time was measured", rate, "≥", RATE)
        words = f"µs of processor time a request of {BODY_BYTES} bytes"
        for role, name in (("gateway", "the gateway"), ("queue", "nats-server"), ("node", "node and runtime")):
            self._bars.note(f"{words}: {name}", statistics.median(ours.us[role] for ours, _ in pairs))
        self._bars.note(f"{words}: a bare echo", statistics.median(theirs.us["echo"] for _, theirs in pairs))
        ratio = statistics.median(ours.us["gateway"] / theirs.us["echo"] for ours, theirs in pairs)
        self._bars.check(f"{words}: the gateway ÷ a bare echo", ratio, "≤", 3.0, 2.0)

    def added(self) -> None:
        with (
            cluster(self._home, 1, [QUICK]) as fleet,
            servers(self._home, [[QUICK]]) as (alone,),
            answering(fleet.queue_url),
        ):
            rounds = [
                (
                    self._lone_s(fleet.port),
                    self._lone_s(alone.port),
                    round_trip_s(fleet.queue_url, self._asked[0].body, self._seconds),
                )
                for _ in range(self._pairs)
            ]
        names = ("through the cluster", "in one process", "a bare NATS request-reply")
        for name, values in zip(names, zip(*rounds, strict=True), strict=True):
            self._bars.note(f"ms, p50 of a lone request: {name}", statistics.median(values) * 1e3)
        ratio = statistics.median((through - within) / bare for through, within, bare in rounds)
        self._bars.check(
            "p50 that the cluster adds to a lone request ÷ a bare NATS request-reply", ratio, "≤", 5.0
        )

    def minilm(self) -> None:
        """In turns, the other one stopped meanwhile."""
        store = Store(RESULTS / "home")
        store.add(Store().add(MODEL).folder, name=MINILM)
        with cluster(store.home, 1, [MINILM]) as fleet, servers(store.home, [[MINILM]]) as (alone,):
            for load in (LOADS["short"], LOADS["lognormal"]):
                asked = requests(load, MINILM)
                pairs = []
                for _ in range(self._pairs):
                    alone.freeze()
                    through = self._rate(fleet, asked, load.connections)
                    alone.thaw()
                    fleet.freeze()
                    pairs.append((through, self._rate(alone, asked, load.connections)))
                    fleet.thaw()
                what = f"MiniLM texts/s, {load.name}, {load.connections} connections"
                for place, name in enumerate(("gateway, queue and one node", "shoal serve")):
                    self._bars.note(f"{what}: {name}", statistics.median(pair[place] for pair in pairs))
                ratio = statistics.median(ours / theirs for ours, theirs in pairs)
                self._bars.check(f"{what}: the cluster ÷ shoal serve", ratio, "≥", 0.92)

    def _spent(self, port: int, pids: dict[str, list[int]]) -> Spent:
        watched = {role: Processes(of_role) for role, of_role in pids.items()}
        marks: list[dict[str, float]] = []

        def watch() -> float:
            marks.append({role: processes.cpu_s() for role, processes in watched.items()})
            return 0.0

        target = Target("127.0.0.1", port)
        run = open_loop(target, self._asked, OFFERED * RATE, self._seconds, 1.0, CONNECTIONS, watch=watch)
        _good(run, port)
        before, after = marks
        return Spent(
            run.per_second, {role: (after[role] - before[role]) / len(run.done) * 1e6 for role in watched}
        )

    def _lone_s(self, port: int) -> float:
        run = closed(Target("127.0.0.1", port), self._asked, 1, self._seconds)
        _good(run, port)
        return run.percentile(0.5)

    def _rate(self, fleet: Fleet, asked: list[Request], connections: int) -> float:
        run = closed(Target("127.0.0.1", fleet.port), asked, connections, self._seconds)
        return speed_of(run, "Shoal").texts_per_second


def body_of(size: int, number: int) -> Request:
    """A text of words of five letters, as long as fits."""
    empty = msgspec.json.encode({"model": QUICK, "input": "", "encoding_format": "base64"})
    words = " ".join(f"w{number + place:04d}" for place in range(size))
    text = words[: size - len(empty)].strip()
    body = msgspec.json.encode({"model": QUICK, "input": text, "encoding_format": "base64"})
    return Request(ROUTE, body + b" " * (size - len(body)), tokens=len(text.split()) + 2)


def _good(run: Run, port: int) -> None:
    """Raises RuntimeError where requests failed."""
    speed_of(run, f"the server on port {port}")
