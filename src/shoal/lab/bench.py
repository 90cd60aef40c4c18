"""One bench from beginning to end: probe, load after load until the knee, report. It prints nothing: who runs it
is told of each level as it stands.
"""

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from shoal.catalog.store import Store
from shoal.lab import load, probe, report
from shoal.lab.knee import Knee, Point, is_settled, knee
from shoal.lab.mixes import Mix, mix, read_lines
from shoal.lab.processes import Memory, Processes
from shoal.lab.ramp import Loads
from shoal.lab.report import Asked, Level, Report
from shoal.lab.run import Request, Run, Target
from shoal.lab.tokens import RATIO, counter_for
from shoal.lab.wires import SHAPES, Wire, ready

STALLED_S = 1.0


class Plan(msgspec.Struct, frozen=True):
    """What a person asked for. `input` is a file of their own requests, in place of the mix named `mix`."""

    url: str
    wire: Wire
    loads: Loads
    command: str = ""
    key: str | None = None
    mix: str = "short"
    input: Path | None = None
    per_request: int = 0
    seed: int = 1
    seconds: float = 5.0
    warm_up_s: float = 1.0
    rounds: int = 1
    target_s: float = 0.0
    pids: tuple[int, ...] = ()


class Watcher:
    """Told what happens; each does nothing unless it is overridden."""

    def probing(self, what: str, tokens: str) -> None:
        """Before the first request, which may have to load the model."""

    def loading(self, load: float, round: int) -> None:
        """Before a load."""

    def measured(self, levels: Sequence[Level], found: Knee) -> None:
        """After a load; `levels` are all that stand."""


def run(plan: Plan, watcher: Watcher | None = None) -> Report:
    """Raises ShoalError, in words for a person, where the target, the model, the key or the input is wrong."""
    return _Bench(plan, watcher or Watcher()).run()


class _Bench:
    def __init__(self, plan: Plan, watcher: Watcher) -> None:
        self._plan = plan
        self._watcher = watcher
        self._target, prefix = probe.target_of(plan.url, plan.key)
        self._wire = msgspec.structs.replace(plan.wire, prefix=prefix)
        self._mix = _mix(plan)
        ratio = RATIO if plan.input else 1.0
        self._counter = counter_for(self._wire.model, ratio, Store())
        self._requests = ready(self._wire, self._mix, self._counter)
        self._processes = Processes(plan.pids) if plan.pids else None
        self._runs: dict[float, list[Run]] = {}
        self._memory: dict[float, Memory] = {}

    def run(self) -> Report:
        began = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        self._watcher.probing(self._mix.what, self._counter.source)
        probe.probe(self._target, self._requests[0], self._wire.model)
        for load_ in self._plan.loads:
            self._measure(load_, 0)
            if self._plan.loads.is_ramp and is_settled([level.point for level in self._levels()], self._find):
                break
        for round_ in range(1, self._plan.rounds):
            for load_ in list(self._runs):
                self._measure(load_, round_)
        return self._report(began)

    def _measure(self, load_: float, round_: int) -> None:
        self._watcher.loading(load_, round_)
        run = _once(self._plan, self._target, self._requests, load_, round_, self._processes)
        if run.stalled_s > STALLED_S:  # the generator's own standing still says nothing of the server
            run = _once(self._plan, self._target, self._requests, load_, round_, self._processes)
        self._runs.setdefault(load_, []).append(run)
        if self._processes is not None:
            self._memory[load_] = self._processes.memory()
        levels = self._levels()
        self._watcher.measured(levels, self._find([level.point for level in levels]))

    def _levels(self) -> list[Level]:
        return [report.level(at, self._runs[at], self._memory.get(at)) for at in sorted(self._runs)]

    def _find(self, points: Sequence[Point]) -> Knee:
        return knee(points, self._plan.loads.kind, self._plan.target_s)

    def _report(self, began: str) -> Report:
        plan, levels = self._plan, self._levels()
        asked = Asked(
            command=plan.command,
            url=plan.url,
            api=self._wire.api,
            model=self._wire.model,
            mix=self._mix.name,
            what=self._mix.what,
            seed=self._mix.seed,
            tokens=self._counter.source,
            kind=plan.loads.kind,
            seconds=plan.seconds,
            warm_up_s=plan.warm_up_s,
            rounds=plan.rounds,
            target_ms=plan.target_s * 1e3,
        )
        return Report(
            format=report.FORMAT,
            began=began,
            asked=asked,
            levels=levels,
            knee=self._find([level.point for level in levels]),
            versions=report.versions(),
            machine=report.machine(),
            server=probe.describe(self._target, self._wire.prefix, self._wire.model),
        )


def _mix(plan: Plan) -> Mix:
    if plan.input is not None:
        return read_lines(plan.input)
    return mix(plan.mix, plan.seed, shape=SHAPES[plan.wire.api], per_request=plan.per_request)


def _once(
    plan: Plan,
    target: Target,
    requests: Sequence[Request],
    load_: float,
    round_: int,
    processes: Processes | None,
) -> Run:
    watch: Callable[[], float] | None = processes.cpu_s if processes else None
    if plan.loads.kind == "connections":
        return load.closed(target, requests, int(load_), plan.seconds, plan.warm_up_s, watch=watch)
    # Each round has arrivals of its own, so that an interval over rounds holds what they vary.
    seed = plan.seed + round_
    return load.open_loop(target, requests, load_, plan.seconds, plan.warm_up_s, seed=seed, watch=watch)
