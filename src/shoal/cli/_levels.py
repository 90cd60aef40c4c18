"""What `shoal bench` prints: each load as it is measured, the knee, and two reports side by side."""

import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from shoal.lab.bench import Plan, Watcher
from shoal.lab.compare import Ratio
from shoal.lab.knee import Knee
from shoal.lab.report import Level, Report

BUSY = 0.9  # of one core: from here on the generator may be the limit
STALLED_MS = 300
RESTING = 0.01
LATE = 0.25  # of the 99th percentile


class Progress(Watcher):
    """A table on stderr that grows. It is drawn between loads only: the generator shares the cores."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._console = Console(stderr=True)
        self._table: Table | Text = Text("")
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> "Progress":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def probing(self, what: str, tokens: str) -> None:
        self._console.print(f"A request holds {what}; tokens counted by {tokens}", highlight=False)
        self._say("waiting for the first answer, which may have to load the model")

    def loading(self, load: float, round: int) -> None:
        again = f", round {round + 1}" if self._plan.rounds > 1 else ""
        self._say(f"{_load(load, self._plan.loads.kind)}{again}: {self._plan.seconds:g} s")

    def measured(self, levels: Sequence[Level], found: Knee) -> None:
        self._table = table(levels, found, self._plan.loads.kind)

    def _say(self, what: str) -> None:
        if self._console.is_terminal:
            grid = Table.grid()
            grid.add_row(self._table)
            grid.add_row(Text(what, style="dim"))
            self._live.update(grid, refresh=True)
        else:
            self._console.print(what, highlight=False)


def table(levels: Sequence[Level], found: Knee, kind: str) -> Table:
    """A row a load; columns that nobody asked for are left out."""
    columns = _columns(levels)
    grid = Table(kind, *columns, "", box=None, pad_edge=False)
    for column in grid.columns[:-1]:
        column.justify = "right"
    for place, level in enumerate(levels):
        is_knee = place == found.place
        cells = [f"{level.load:g}", *(cell(level) for cell in columns.values()), "← knee" if is_knee else ""]
        grid.add_row(*map(Text, cells), style="bold" if is_knee else "")
    return grid


def _columns(levels: Sequence[Level]) -> dict[str, Any]:
    def has(name: str) -> bool:
        return any(getattr(level, name) for level in levels)

    columns: dict[str, Any] = {"requests/s": lambda level: f"{level.per_second:.1f}"}
    if any(level.items_per_second != level.per_second for level in levels):
        columns["items/s"] = lambda level: f"{level.items_per_second:.1f}"
    columns["tokens/s"] = lambda level: f"{level.tokens_per_second:.0f}"
    if has("made_per_second"):
        columns["made/s"] = lambda level: f"{level.made_per_second:.1f}"
        columns["first p50"] = lambda level: _ms(level.first_p50_ms)
    columns |= {
        "p50 ms": lambda level: _ms(level.p50_ms),
        "p95 ms": lambda level: _ms(level.p95_ms),
        "p99 ms": lambda level: _ms(level.p99_ms),
    }
    if has("errors"):
        columns["failed"] = lambda level: f"{level.failed:.1%}"
    if has("cpu_cores"):
        columns["CPU ms/item"] = lambda level: f"{level.cpu_ms_per_item:.3f}"
        columns["cores"] = lambda level: f"{level.cpu_cores:.2f}"
    if has("memory"):
        columns["memory MB"] = lambda level: f"{(level.memory.pss_bytes or level.memory.rss_bytes) / 1e6:.0f}"
    return columns


def show(report: Report) -> None:
    """The table on stdout, and what a reader of it must know."""
    console = _stdout()
    console.print(table(report.levels, report.knee, report.asked.kind))
    if report.knee.place is not None:
        level = report.levels[report.knee.place]
        at = _load(level.load, report.asked.kind)
        console.print(f"knee at {at}: {report.knee.why}", highlight=False)
    else:
        console.print(report.knee.why, highlight=False)
    for level in report.levels:
        for warning in _warnings(level):
            console.print(f"{_load(level.load, report.asked.kind)}: {warning}", highlight=False, markup=False)


def _warnings(level: Level) -> list[str]:
    found = []
    if level.errors:
        kinds = ", ".join(f"{kind} {count} times" for kind, count in level.errors.items())
        found.append(f"failed: {kinds}" + (f"; the server says: {level.complaint}" if level.complaint else ""))
    if level.resting > RESTING:
        found.append(f"refused connections rested, as they were asked to, {level.resting:.0%} of the time")
    if level.generator_share > BUSY:
        found.append("the generator itself had a core to its limit; the server may do more than this")
    if level.late_ms > max(1, LATE * level.p99_ms):
        found.append(f"requests left up to {level.late_ms:.1f} ms late, which latencies hold")
    if level.stalled_ms > STALLED_MS:
        found.append(f"this machine stood still for {level.stalled_ms / 1e3:.1f} s; measure again")
    return found


def show_ratios(ratios: Sequence[Ratio], kind: str) -> None:
    grid = Table(kind, "", "A", "B", "B ÷ A", "95 % interval", "", box=None, pad_edge=False)
    for column in (grid.columns[0], *grid.columns[2:6]):
        column.justify = "right"
    last = None
    for ratio in ratios:
        load = f"{ratio.load:g}" if ratio.load != last else ""
        last = ratio.load
        unit = "" if ratio.more_is_better else " ms"
        interval = f"{ratio.low:.3f} … {ratio.high:.3f}"
        cells = [load, ratio.what, f"{ratio.a:.4g}{unit}", f"{ratio.b:.4g}{unit}", f"{ratio.ratio:.3f}", interval]
        grid.add_row(*cells, ratio.verdict)
    _stdout().print(grid)


def _stdout() -> Console:
    # Whatever is no terminal gets whole lines.
    return Console(width=None if sys.stdout.isatty() else 10_000)


def _load(load: float, kind: str) -> str:
    if kind == "rate":
        return f"{load:g} requests/s"
    return f"{load:g} connection" + ("s" if load != 1 else "")


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
