"""What a bench leaves: one JSON file with every figure, and with all that is needed to do it again.

Each level of load keeps its runs in slices of equal time, so that two reports can be compared with an interval:
what happens within a second hangs together, seconds do so less.
"""

import importlib.metadata
import os
import platform
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from shoal.lab.knee import Kind, Knee, Point
from shoal.lab.processes import Memory
from shoal.lab.run import UNANSWERED, Answer, Run, quantile
from shoal.protocol.errors import InvalidInput
from shoal.version import __version__

FORMAT = 1
SLICES = 20  # of one run
KEPT = 200  # latencies of one slice, evenly out of all in order


class Slice(msgspec.Struct, frozen=True):
    """A twentieth of a run. `latencies_ms` ascend; where there were more than `KEPT`, each stands for several."""

    round: int
    seconds: float
    good: int
    items: int
    tokens: int
    asked: int
    """How many latencies there were."""
    latencies_ms: list[float]


class Level(msgspec.Struct, frozen=True):
    """One load, all its rounds together. Milliseconds where a name says so; rates a second; 0 where none is known.

    `made` are a chat's tokens, `first_*` the latency of its first. `cpu_ms_per_item` and `memory` are of the
    watched processes, memory at the end. `generator_share` is of one core: near 1, the generator was the limit.
    """

    load: float
    seconds: float
    offered: float
    per_second: float
    items_per_second: float
    tokens_per_second: float
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    errors: dict[str, int]
    failed: float
    slices: list[Slice]
    made_per_second: float = 0.0
    first_p50_ms: float = 0.0
    first_p99_ms: float = 0.0
    stalled_ms: float = 0.0
    resting: float = 0.0
    """Share of the connections' time that they sent nothing because a refusal had asked for that."""
    reopened: int = 0
    late_ms: float = 0.0
    generator_share: float = 0.0
    cpu_ms_per_item: float = 0.0
    cpu_cores: float = 0.0
    memory: Memory | None = None
    complaint: str = ""

    @property
    def point(self) -> Point:
        """For the knee; what was never answered took for ever."""
        p50, p99 = (ms / 1e3 if ms else float("inf") for ms in (self.p50_ms, self.p99_ms))
        return Point(self.load, self.per_second, p50, p99, self.offered, max(self.failed, self.resting))


class Asked(msgspec.Struct, frozen=True):
    """What to ask again, of whom, and how."""

    command: str
    url: str
    api: str
    model: str
    mix: str
    what: str
    seed: int | None
    tokens: str
    """How tokens were counted."""
    kind: Kind
    seconds: float
    warm_up_s: float
    rounds: int
    target_ms: float = 0.0


class Report(msgspec.Struct, frozen=True):
    """`server` is what the target says of the model; `knee` indexes `levels`, which ascend by load."""

    format: int
    began: str
    asked: Asked
    levels: list[Level]
    knee: Knee
    versions: dict[str, str]
    machine: dict[str, Any]
    server: dict[str, Any] = {}


def level(load: float, runs: Sequence[Run], memory: Memory | None = None) -> Level:
    """The runs of one load as one."""
    seconds = sum(run.seconds for run in runs)
    done = [answer for run in runs for answer in run.done]
    latencies = sorted(latency for run in runs for latency in run.latencies)
    firsts = sorted(answer.first_s for answer in done if answer.first_s)
    errors = sum((Counter(run.errors) for run in runs), Counter[str]())
    began = sum(0 <= answer.began_s <= run.seconds for run in runs for answer in run.answers)
    items, cpu_s = sum(answer.items for answer in done), sum(run.cpu_s for run in runs)
    return Level(
        load=load,
        seconds=seconds,
        offered=began / seconds,
        per_second=len(done) / seconds,
        items_per_second=items / seconds,
        tokens_per_second=sum(answer.tokens for answer in done) / seconds,
        made_per_second=sum(answer.made for answer in done) / seconds,
        mean_ms=_ms(sum(latencies) / len(latencies)) if latencies else 0.0,
        p50_ms=_ms(quantile(latencies, 0.5)),
        p95_ms=_ms(quantile(latencies, 0.95)),
        p99_ms=_ms(quantile(latencies, 0.99)),
        first_p50_ms=_ms(quantile(firsts, 0.5)),
        first_p99_ms=_ms(quantile(firsts, 0.99)),
        errors=dict(errors),
        failed=sum(errors.values()) / began if began else 0.0,
        resting=sum(run.rested_s for run in runs) / (seconds * load),
        stalled_ms=_ms(max(run.stalled_s for run in runs)),
        reopened=sum(run.reopened for run in runs),
        late_ms=_ms(max(run.late_s for run in runs)),
        generator_share=sum(run.own_cpu_s for run in runs) / seconds,
        cpu_ms_per_item=_ms(cpu_s / items) if items else 0.0,
        cpu_cores=cpu_s / seconds,
        memory=memory,
        complaint=next((run.complaint for run in runs if run.complaint), ""),
        slices=[entry for number, run in enumerate(runs) for entry in _slices(number, run)],
    )


def _slices(number: int, run: Run) -> list[Slice]:
    width = run.seconds / SLICES
    came: list[list[Answer]] = [[] for _ in range(SLICES)]
    waited: list[list[float]] = [[] for _ in range(SLICES)]
    for answer in run.done:
        came[min(SLICES - 1, int((answer.began_s + answer.latency_s) / width))].append(answer)
    for answer in run.answers:
        if 0 <= answer.began_s <= run.seconds and (answer.is_good or answer.fault == UNANSWERED):
            waited[min(SLICES - 1, int(answer.began_s / width))].append(answer.latency_s)
    return [
        Slice(
            round=number,
            seconds=width,
            good=len(answers),
            items=sum(answer.items for answer in answers),
            tokens=sum(answer.tokens for answer in answers),
            asked=len(latencies),
            latencies_ms=_thinned(sorted(latencies)),
        )
        for answers, latencies in zip(came, waited, strict=True)
    ]


def _thinned(latencies: list[float]) -> list[float]:
    if len(latencies) > KEPT:
        latencies = [quantile(latencies, (place + 0.5) / KEPT) for place in range(KEPT)]
    return [_ms(latency) for latency in latencies]


def _ms(seconds: float) -> float:
    """To a hundredth of a microsecond, with 0 for what is not known: JSON has no NaN."""
    return round(seconds * 1e3, 5) if seconds == seconds else 0.0


def versions() -> dict[str, str]:
    found = {name: importlib.metadata.version(name) for name in ("uvloop", "msgspec")}
    return {"shoal": __version__, "python": platform.python_version()} | found


def machine() -> dict[str, Any]:
    """Where the load came from; the target's too where that is the same machine."""
    sizes = {"pages": "SC_PHYS_PAGES", "page": "SC_PAGE_SIZE"}
    memory = 1
    for name in sizes.values():
        memory *= os.sysconf(name)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"processor": _processor(), "cores": cores, "memory_bytes": memory, "system": platform.platform()}


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write(report: Report, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))


def read(path: Path) -> Report:
    """Raises InvalidInput for a file that is no report, OSError for none at all."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Report)
    except msgspec.MsgspecError as e:
        raise InvalidInput(f"{path} is no report of shoal bench: {e}") from e
