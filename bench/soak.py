"""Whether memory stays where it is: minutes of every length and several models over HTTP, at a moderate load.

    python bench/soak.py [--minutes 10] [--plot soak.png]

One round after another of the phases below. MiniLM is pinned; of the others not all fit beside it, so that
they make each other go. At the end of each phase the anonymous memory (RssAnon) of the server and of its
runtimes is read: all that can leak is there, while PSS moves with strangers that map the same libraries. To
the second half of the time a straight line is fitted, with one slope for all phases and a height of its own
for each, since different models are loaded in them. The bar is on what that line grows by in the second half,
less twice its standard error: no more than 2 MB, or than 1 % an hour where that is more. Prints every figure
beside its bar, keeps it in .cache/bench/soak.json, and exits 1 where a bar is missed.
"""

import argparse
import json
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from bars import RESULTS, Bars
from loads import make_load
from shoal.catalog.store import Store
from shoal.lab import mixes
from shoal.lab.load import Request, Target, closed
from shoal.lab.plot import BLUE, GREY, ORANGE, figure_class
from shoal.testing.server import Server, serving
from sides import MODEL, requests

OTHERS = ("BAAI/bge-small-en-v1.5", "cross-encoder/ms-marco-MiniLM-L-12-v2", "rasyosef/splade-tiny")
PHASE_S = 4.0
PATIENCE_S = 600.0
BAR_MB, BAR_PER_HOUR = 2.0, 0.01
MB = 1e6


class Phase(msgspec.Struct, frozen=True):
    name: str
    connections: int
    requests: list[Request]


class Sample(msgspec.Struct, frozen=True):
    """Bytes after one phase: of all processes, of the server's own, and of the pinned runtime's."""

    phase: str
    at_s: float
    total: float
    server: float
    pinned: float


def phases() -> list[Phase]:
    bge, reranker, splade = OTHERS
    lognormal = make_load("lognormal", 8, mixes.lognormal)
    long = make_load("long", 2, lambda rng: rng.randint(200, 1500))  # most are cut at the model's limit
    batch = make_load("batch", 2, mixes.lognormal, mixes.BATCH)
    texts = mixes.texts_of(mixes.lognormal, 2048, seed=9)
    reranks = [{"model": reranker, "query": texts[n], "documents": texts[n : n + 20]} for n in range(500)]
    sparse = [{"items": [text], "params": {"output_types": ["sparse"]}} for text in texts]
    return [
        Phase("short", 16, requests(make_load("short", 16, mixes.short))),
        Phase("lognormal", 8, requests(lognormal)),
        Phase("batch", 2, requests(batch)),
        Phase("long", 2, requests(long)),
        Phase("another encoder", 4, requests(lognormal, bge)),
        Phase("rerank", 2, [Request("/v1/rerank", msgspec.json.encode(body)) for body in reranks]),
        Phase("sparse", 4, [Request(f"/v1/encode/{splade}", msgspec.json.encode(body)) for body in sparse]),
    ]


def soak(server: Server, minutes: float) -> list[Sample]:
    """Raises RuntimeError where a request fails."""
    target, (pinned,) = Target("127.0.0.1", server.port), server.runtime_pids()
    found: list[Sample] = []
    began, rounds = time.monotonic(), phases()
    while time.monotonic() < began + 60 * minutes:
        for phase in rounds:
            run = closed(target, phase.requests, phase.connections, PHASE_S, 0.0, patience_s=PATIENCE_S)
            if run.errors:
                raise RuntimeError(f"{phase.name}: {run.errors} {run.complaint}")
            own = anonymous_bytes(server.process.pid)
            total = own + sum(map(anonymous_bytes, server.runtime_pids()))
            found.append(Sample(phase.name, time.monotonic() - began, total, own, anonymous_bytes(pinned)))
        last = found[-1]
        print(f"        {last.at_s:6.0f} s  {last.total / MB:7.1f} MB, pinned {last.pinned / MB:7.1f}", flush=True)
    return found


def anonymous_bytes(pid: int) -> int:
    """0 of a process that has ended meanwhile."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def slope(samples: Sequence[Sample], what: str) -> tuple[float, float]:
    """Bytes a second and their standard error: least squares with a height of its own for each phase."""
    names = sorted({sample.phase for sample in samples})
    at = np.array([sample.at_s for sample in samples])
    height = np.array([getattr(sample, what) for sample in samples], float)
    place = np.array([names.index(sample.phase) for sample in samples])
    for each in range(len(names)):
        is_here = place == each
        at[is_here] -= at[is_here].mean()
        height[is_here] -= height[is_here].mean()
    found = float(at @ height / (at @ at))
    free = max(1, len(samples) - len(names) - 1)
    return found, float(np.sqrt(((height - found * at) ** 2).sum() / free / (at @ at)))


def judge(bars: Bars, samples: Sequence[Sample]) -> None:
    half = [sample for sample in samples if sample.at_s >= samples[-1].at_s / 2]
    seconds = half[-1].at_s - half[0].at_s
    words = {"total": "all processes", "server": "the server's own process", "pinned": "the pinned runtime"}
    for what, name in words.items():
        mean = float(np.mean([getattr(sample, what) for sample in half])) / MB
        per_second, error = (value / MB for value in slope(half, what))
        bars.note(f"MB in the second half, {name}", mean)
        bars.note(f"MB an hour, standard error of the slope, {name}", error * 3600)
        bars.note(f"MB an hour, {name}", per_second * 3600)
        most = max(BAR_MB, BAR_PER_HOUR * mean * seconds / 3600)
        grown = (per_second - 2 * error) * seconds
        bars.check(f"MB grown in the second half, {name}", grown, "≤", round(most, 2))
    pinned = [sample.pinned for sample in samples]
    bars.note("MB of the pinned runtime at the most", max(pinned) / MB)
    bars.note("MB of the pinned runtime at the end", pinned[-1] / MB)


def draw(samples: Sequence[Sample], picture: Path) -> None:
    figure = figure_class()(figsize=(9, 4.5), dpi=130, layout="constrained")
    axes = figure.subplots()
    minutes = [sample.at_s / 60 for sample in samples]
    for what, name, colour in (
        ("total", "all", BLUE),
        ("pinned", "pinned runtime", ORANGE),
        ("server", "server", GREY),
    ):
        axes.plot(
            minutes, [getattr(sample, what) / MB for sample in samples], ".-", color=colour, lw=0.8, label=name
        )
    axes.axvspan(minutes[-1] / 2, minutes[-1], color="#f3f3f3", zorder=0)
    axes.set_xlabel("minutes; the slope is of the shaded half")
    axes.set_ylabel("anonymous memory, MB")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, format="png")
    print(f"        drawn: {picture}", flush=True)


def footprints(home: Path) -> dict[str, int]:
    """Measured bytes of each model, every one loaded once."""
    with serving(home, "--pin", MODEL) as server:
        for phase in phases():
            closed(
                Target("127.0.0.1", server.port), phase.requests, phase.connections, PHASE_S, 0.0, patience_s=60.0
            )
        time.sleep(2)
        with urllib.request.urlopen(f"{server.url}/v1/models") as answer:
            return {model["name"]: model["memory_bytes"] for model in json.load(answer)["models"]}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=10.0)
    options.add_argument("--plot", type=Path, default=RESULTS / "soak.png")
    arguments = options.parse_args()
    store, bars = Store(), Bars(RESULTS / "soak.json")
    for name in (MODEL, *OTHERS):
        store.add(name)
    sizes = footprints(store.home)
    memory = int(1.3 * (sizes[MODEL] + max(sizes[name] for name in OTHERS)))
    bars.note("MB that all models may take", memory / MB)
    bars.note("MB of them all", sum(sizes[name] for name in (MODEL, *OTHERS)) / MB)
    # Nobody is refused for a machine that others keep busy: it is memory that is measured.
    patient = ("--max-wait", str(PATIENCE_S))
    with serving(store.home, "--pin", MODEL, "--memory", str(memory), *patient) as server:
        samples = soak(server, arguments.minutes)
    judge(bars, samples)
    arguments.plot.parent.mkdir(parents=True, exist_ok=True)
    draw(samples, arguments.plot)
    return 1 if bars.missed else 0


if __name__ == "__main__":
    sys.exit(main())
