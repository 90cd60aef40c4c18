"""One picture of all peers: a panel a row, a bar a server, from what bench/peers.py has kept."""

from collections.abc import Mapping
from pathlib import Path
from statistics import median

from bars import Figure, read_figures

SERVERS = {"infinity": "infinity", "vllm": "vLLM (CPU)", "sie": "sie-server", "st": "sentence-transformers"}
OURS, OTHERS = "#0b6e75", "#b9c4c9"


def draw(results: Path, picture: Path, rows: Mapping[str, str]) -> None:
    """Nothing is drawn where nothing was measured. `rows` gives each panel's title by its name."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plot

    figures = read_figures(results)
    panels = {title: heights(figures, title) for row, title in rows.items() if row != "cosine"}
    panels = {title: found for title, found in panels.items() if len(found) > 1}
    if not panels:
        return
    down = -(-len(panels) // 2)
    page, axes = plot.subplots(down, 2, figsize=(11, 2.4 * down), layout="constrained", squeeze=False)
    for axis, (title, found) in zip(axes.flat, panels.items(), strict=False):
        bars = axis.barh(list(found), list(found.values()), color=[OURS] + [OTHERS] * (len(found) - 1))
        axis.bar_label(bars, fmt=lambda value: f"{value:,.3g}" if value < 100 else f"{value:,.0f}", padding=4)
        axis.set_title(title, loc="left", fontsize=10)
        axis.invert_yaxis()
        axis.margins(x=0.15)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in list(axes.flat)[len(panels) :]:
        axis.remove()
    page.suptitle("all-MiniLM-L6-v2 on the same cores, same load", x=0.01, ha="left")
    page.savefig(picture, dpi=130)
    print(f"        drawn: {picture}", flush=True)


def heights(figures: Mapping[str, Figure], title: str) -> dict[str, float]:
    """Shoal's, the median of its runs beside each peer, then the peers'; empty where no peer was measured."""
    ours = [figures[what].value for peer in SERVERS if (what := f"{title}: Shoal beside {peer}") in figures]
    theirs = {
        words: figures[what].value for peer, words in SERVERS.items() if (what := f"{title}: {peer}") in figures
    }
    return {"Shoal": median(ours)} | theirs if ours else {}
