"""Three times what the machine can answer: what still comes back, what is refused, and how soon it is over.

    python bench/overload.py [--connections 1000,2000] [--seconds 10] [--knee 0]

1. MiniLM's knee, over connections, by the rule of shoal.lab.knee (`--knee 128` takes that for it).
2. For each number of connections: the rate at the knee once more, then three times that as an open loop, and
   again with a kill -9 of the runtime in the middle. `--max-wait 1`. Then nothing more is sent, what was
   accepted is worked off, and a lone client asks until its median is within 1.5 of what it was when nothing
   else was there.

The generator is on the same cores. Its own processor time is printed, and so is goodput with the time that it took
more than at the knee given back; the bar is on what was measured. Prints every figure beside its bar, keeps it in
.cache/bench/overload.json, exits 1 where a bar is missed. Takes about four minutes.
"""

import argparse
import os
import resource
import signal
import statistics
import sys
import time

import msgspec
import psutil

from bars import RESULTS, Bars
from loads import LOADS
from shoal.catalog.store import Store
from shoal.lab import bench
from shoal.lab.load import Target
from shoal.lab.ramp import Loads, parse_loads
from shoal.lab.wires import Wire
from shoal.testing.flood import Event, Flood, Flooded
from shoal.testing.server import Server, serving
from sides import MODEL, requests

TIMES = 3
WARM_UP_S = 2.0
PROBES = 5
CALM = 1.5
PATIENCE_S = 20.0
WHY = "of the generator on the same cores"


class Under(msgspec.Struct, frozen=True):
    """A flood, and the processor seconds a second of the server's own process meanwhile, runtimes not counted."""

    flooded: Flooded
    server_cpu: float

    @property
    def generator_cpu(self) -> float:
        return self.flooded.own_cpu_s / self.flooded.seconds


class Overload:
    def __init__(self, server: Server, bars: Bars, seconds: float, knee: int) -> None:
        self._server, self._bars, self._seconds = server, bars, seconds
        target = Target("127.0.0.1", server.port)
        self._requests = [request.encode(target) for request in requests(LOADS["short"])]
        self._process = psutil.Process(server.process.pid)
        self._knee = knee or self._find_knee()
        self._idle_s = statistics.median(self._probe(Flood(server.port, self._requests, 1), 40))
        self._bars.note("ms, p50 of a lone client", self._idle_s * 1e3)

    def under(self, connections: int) -> None:
        """Both floods, with and without a kill."""
        for kill in (False, True):
            what = f"{connections} connections{', kill -9 in the middle' if kill else ''}"
            knee = self._flood(self._knee, 0)
            events: list[Event] = [(self._seconds / 2, self._kill)] if kill else []
            flood = Flood(self._server.port, self._requests, connections)
            over = self._measure(flood, TIMES * knee.flooded.good_per_second, events)
            recovered_s = self._recovery(time.perf_counter())
            left = flood.finish()
            flood.close()
            self._report(what, knee, over, kill)
            self._bars.check(f"s until calm, {what}", recovered_s, "≤", 2.0)
            self._bars.check(f"requests never answered, {what}", left, "≤", 0)

    def _report(self, what: str, knee: Under, over: Under, kill: bool) -> None:
        bars, seen, base = self._bars, over.flooded, knee.flooded.good_per_second
        bars.note(f"requests/s at the knee, {what}", base)
        if kill:
            bars.note(f"s without an answer after the kill, {what}", seen.longest_gap_s(self._seconds / 2))
            bars.note(f"goodput ÷ knee, the kill included, {what}", seen.good_per_second / base)
        else:
            cores = os.cpu_count() or 1
            given_back = cores / (cores - (over.generator_cpu - knee.generator_cpu))
            bars.check(f"goodput ÷ knee, {what}", seen.good_per_second / base, "≥", 0.95)
            bars.note(f"goodput ÷ knee without the extra {WHY}, {what}", seen.good_per_second * given_back / base)
            served = knee.server_cpu / base
            spent = over.server_cpu - served * seen.good_per_second
            bars.note(f"µs of the server an answer, runtimes not counted, {what}", served * 1e6)
            bars.note(f"µs of the server a refusal, {what}", spent / max(1.0, seen.refused / seen.seconds) * 1e6)
            bars.note(f"processor share {WHY}, {what}", over.generator_cpu)
        bars.note(f"share refused, {what}", seen.refused / max(1, seen.answers))
        bars.note(f"ms, p50 of what was answered, {what}", seen.percentile(0.5) * 1e3)
        bars.note(f"ms, p99 of what was answered, {what}", seen.percentile(0.99) * 1e3)
        bars.note(f"ms late that 99 of 100 requests left at most, {what}", seen.late_s * 1e3)
        others = seen.answers - seen.refused - seen.statuses.get("200", 0)
        bars.check(f"answers that are neither 200 nor a refusal, {what}", others, "≤", 0)
        bars.check(f"refusals without Retry-After, {what}", seen.without_retry_after, "≤", 0)
        print(f"        statuses {seen.statuses}, Retry-After {sorted(set(seen.retry_after_s))} s", flush=True)

    def _flood(self, connections: int, rate: float) -> Under:
        flood = Flood(self._server.port, self._requests, connections)
        found = self._measure(flood, rate, [])
        flood.finish()
        flood.close()
        return found

    def _measure(self, flood: Flood, rate: float, events: list[Event]) -> Under:
        flood.run(rate, WARM_UP_S)
        before = sum(self._process.cpu_times()[:2])
        flooded = flood.run(rate, self._seconds, events=events)
        return Under(flooded, (sum(self._process.cpu_times()[:2]) - before) / self._seconds)

    def _recovery(self, ended: float) -> float:
        """Seconds from `ended` to the first of PROBES answers whose median is near the idle one."""
        flood = Flood(self._server.port, self._requests, 1)
        taken: list[tuple[float, float]] = []
        while time.perf_counter() < ended + PATIENCE_S:
            taken.append((time.perf_counter(), self._probe(flood, 1)[0]))
            last = [seconds for _, seconds in taken[-PROBES:]]
            is_served = len(last) == PROBES and max(last) < PATIENCE_S
            if is_served and statistics.median(last) <= CALM * self._idle_s:
                flood.close()
                return taken[-PROBES][0] + last[0] - ended
        flood.close()
        return PATIENCE_S

    def _probe(self, flood: Flood, times: int) -> list[float]:
        """Seconds that each took, one after another; one that is refused took for ever."""
        return [flood.ask() for _ in range(times)]

    def _kill(self) -> None:
        for pid in self._server.runtime_pids():
            os.kill(pid, signal.SIGKILL)

    def _find_knee(self) -> int:
        loads: Loads = parse_loads("8..512", "connections")
        plan = bench.Plan(self._server.url, Wire("openai", MODEL), loads, seconds=3.0)
        report = bench.run(plan)
        place = report.knee.place
        level = max(report.levels, key=lambda level: level.per_second) if place is None else report.levels[place]
        print(f"        knee: {report.knee.why}", flush=True)
        self._bars.note("connections at the knee", level.load)
        self._bars.note("requests/s there, by shoal bench", level.per_second)
        return int(level.load)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--connections", default="1000,2000")
    options.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    options.add_argument("--knee", type=int, default=0, help="connections; found where it is not given")
    arguments = options.parse_args()
    numbers = [int(number) for number in arguments.connections.split(",")]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * max(numbers) + 512
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise SystemExit(f"{wanted} open files are needed and {hard} allowed; raise the hard limit (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))  # the server inherits it
    bars = Bars(RESULTS / "overload.json")
    store = Store()
    store.add(MODEL)
    with serving(store.home, "--pin", MODEL, "--max-wait", "1") as server:
        overload = Overload(server, bars, arguments.seconds, arguments.knee)
        for connections in numbers:
            overload.under(connections)
    return 1 if bars.missed else 0


if __name__ == "__main__":
    sys.exit(main())
