"""A report as a picture: throughput and latency over load, the knee marked. Needs matplotlib, an extra."""

from pathlib import Path
from typing import Any

from shoal.lab.report import Report
from shoal.protocol.errors import InvalidInput

KINDS = (".png", ".jpg", ".jpeg", ".svg", ".pdf")
BLUE, ORANGE, RED, GREY = "#1f6fb4", "#e08214", "#b2182b", "#666666"


def plot(report: Report, path: Path) -> None:
    """Writes what the file's name ends in. Raises InvalidInput as `kind_of` and `figure_class` do."""
    kind, figure_of = kind_of(path), figure_class()
    figure = figure_of(figsize=(8, 7.2), dpi=140, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1))
    asked = report.asked
    figure.suptitle(f"{asked.model}  ·  {asked.api}  ·  {asked.mix}", fontsize=12, fontweight="bold")
    _throughput(above, report)
    _latency(below, report)
    _axis(below, report)
    for axes in (above, below):
        axes.grid(True, which="major", color="#e3e3e3", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        _mark(axes, report)
    where = f"{report.machine.get('processor', '')}, {report.machine.get('cores', '?')} cores"
    figure.supxlabel(f"{report.began}  ·  {where}  ·  {report.knee.why}", fontsize=7.5, color=GREY)
    figure.savefig(path, format=kind)


def kind_of(path: Path) -> str:
    """Of picture, by the file's name. Raises InvalidInput for a name that says none that we draw."""
    if path.suffix.lower() not in KINDS:
        raise InvalidInput(f"the name {path.name} says no kind of picture that can be drawn: {', '.join(KINDS)}")
    return path.suffix.lower().removeprefix(".")


def figure_class() -> Any:
    """matplotlib's Figure, which draws without a display. Raises InvalidInput where there is none."""
    try:
        from matplotlib.figure import Figure
    except ImportError as e:
        raise InvalidInput("a plot needs matplotlib: pip install 'shoal[bench]'") from e
    return Figure


def _throughput(axes: Any, report: Report) -> None:
    loads = [level.load for level in report.levels]
    rates = [level.items_per_second for level in report.levels]
    axes.plot(loads, rates, marker="o", color=BLUE, zorder=3)
    failed = [(level.load, level.items_per_second) for level in report.levels if level.failed > 0.01]
    if failed:
        axes.scatter(*zip(*failed, strict=True), marker="x", s=70, color=RED, zorder=4, label="over 1 % failed")
        axes.legend(loc="lower right", frameon=False)
    axes.set_ylabel("items/s")
    axes.set_ylim(0, max(rates, default=1) * 1.18 or 1)
    tokens = axes.secondary_yaxis("right", functions=_scale(report))
    tokens.set_ylabel("tokens/s", color=GREY)
    tokens.tick_params(colors=GREY)


def _scale(report: Report) -> Any:
    """Items to tokens and back: by the mix's own mean, the same at every load."""
    items = sum(level.items_per_second * level.seconds for level in report.levels)
    tokens = sum(level.tokens_per_second * level.seconds for level in report.levels)
    mean = tokens / items if items and tokens else 1.0
    return (lambda value: value * mean, lambda value: value / mean)


def _latency(axes: Any, report: Report) -> None:
    from matplotlib.ticker import LogLocator

    loads = [level.load for level in report.levels]
    series = [("p50_ms", "p50", "-", BLUE), ("p95_ms", "p95", "--", ORANGE), ("p99_ms", "p99", "-", RED)]
    if any(level.first_p50_ms for level in report.levels):
        series.append(("first_p50_ms", "first token, p50", ":", GREY))
    for name, label, style, color in series:
        values = [getattr(level, name) or float("nan") for level in report.levels]
        axes.plot(loads, values, style, marker="o", markersize=4, color=color, label=label)
    if report.asked.target_ms:
        axes.axhline(report.asked.target_ms, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set_yscale("log")
    axes.set_ylabel("latency, ms")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.legend(loc="upper left", frameon=False)


def _axis(axes: Any, report: Report) -> None:
    loads = [level.load for level in report.levels]
    if len(loads) > 1:
        axes.set_xscale("log", base=2)
    axes.set_xticks(loads, [f"{load:g}" for load in loads])
    axes.minorticks_off()
    axes.set_xlabel("connections" if report.asked.kind == "connections" else "requests offered a second")


def _mark(axes: Any, report: Report) -> None:
    place = report.knee.place
    if place is None:
        return
    level = report.levels[place]
    axes.axvline(level.load, color=GREY, linewidth=1.2, linestyle=(0, (2, 2)))
    if axes.get_yscale() == "linear":
        axes.annotate(
            f"knee: {level.items_per_second:.0f} items/s, p50 {level.p50_ms:.3g} ms, p99 {level.p99_ms:.3g} ms",
            (level.load, level.items_per_second),
            xytext=(0.02, 0.97),
            textcoords="axes fraction",
            va="top",
            fontsize=9,
            arrowprops={"arrowstyle": "->", "color": GREY, "shrinkB": 6},
        )
