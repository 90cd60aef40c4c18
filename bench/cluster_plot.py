"""The cluster's capacities as one picture, from what bench/cluster.py has kept."""

from collections.abc import Mapping
from pathlib import Path

from bars import Figure, read_figures

KNEE = "useful tokens/s at the knee, dilation taken out, "
PEAK = "tokens/s of one device at its peak, dilation taken out, "
OURS, OTHERS, LIMIT = "#0b6e75", "#b9c4c9", "#c2571a"


def draw(results: Path, picture: Path) -> None:
    """Left: devices against useful tokens. Right: what the same devices do by pulling and behind routers, and what
    they could. Nothing is drawn where nothing was measured."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plot

    figures = read_figures(results)
    scaling = {n: value for n in (1, 2, 4, 8) if (value := _value(figures, f"{KNEE}packed, {n} nodes"))}
    knees = {what.removeprefix(KNEE): figure.value for what, figure in figures.items() if what.startswith(KNEE)}
    knees = {name: value for name, value in knees.items() if name == "padded, 8 nodes" or "-" in name}
    if not scaling and not knees:
        return
    page, (left, right) = plot.subplots(1, 2, figsize=(12, 4.2), layout="constrained")
    left.plot(list(scaling), list(scaling.values()), "o-", color=OURS, label="at the knee")
    peak = _value(figures, f"{PEAK}packed")
    if peak:
        left.plot(list(scaling), [n * peak for n in scaling], "--", color=LIMIT, label="peak")
    left.set(xlabel="devices", ylim=(0, None), title="Useful tokens/s, one model, packed")
    left.legend(frameon=False)
    bars = right.barh(list(knees), list(knees.values()), color=[OTHERS if "-" in name else OURS for name in knees])
    right.bar_label(bars, fmt=lambda value: f"{value:,.0f}", padding=4)
    if limit := _value(figures, f"{PEAK}padded"):
        right.axvline(8 * limit, color=LIMIT, linestyle="--")
    right.set_title("Useful tokens/s at the knee, 8 padded devices (dashed: peak)", fontsize=11)
    right.invert_yaxis()
    right.margins(x=0.15)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    page.savefig(picture, dpi=130)
    plot.close(page)
    print(f"        drawn: {picture}", flush=True)


def _value(figures: Mapping[str, Figure], what: str) -> float:
    return figures[what].value if what in figures else 0.0
