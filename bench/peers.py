"""Shoal against the servers people would install instead: the same model, the same load, the same cores, in turn.

    python bench/peers.py [--peers infinity,vllm,sie,st] [--only short,alone] [--seconds 4] [--pairs 5]

Each peer is installed in an environment of its own, which is kept (environments.py); how it is started stands in
recipes.py. Shoal and one peer are up together and loaded in turn, `--pairs` times; the median ratio counts, since
shared machines drift by more than the differences of interest. Prints every figure beside its bar, keeps it in
.cache/bench/peers.json, draws peers.png beside it from all that is kept, and exits 1 where a bar is missed.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Sequence

import numpy as np

from bars import RESULTS, Bars
from chosen import chosen
from environments import NotHere, environment
from loads import LOADS, texts_of_all_lengths
from pairing import Pair, paired
from peers_plot import draw
from recipes import DEVICE, RECIPES
from shoal.catalog.store import Store
from sides import MODEL, Speed
from worker import Worker

ROWS = {
    "start": "s from start to the first vector",
    "lognormal": "texts/s, lognormal, 32 connections",
    "memory": "MB (PSS of all processes) after the lognormal load",
    "short": "texts/s, short, 128 connections",
    "alone": "p50 ms of one short text, one connection",
    "batch": "texts/s, requests of 32 short texts, one connection",
    "cosine": "worst cosine to sentence-transformers fp32",
}
"""In the order in which they are measured: memory is to be that after the lognormal load alone."""

BARS: dict[tuple[str, str], tuple[str, float, float | None]] = {
    ("start", "infinity"): ("≤", 0.2, 0.1),
    ("lognormal", "infinity"): ("≥", 7.0, None),
    ("lognormal", "vllm"): ("≥", 1.6, 1.8),
    ("memory", "infinity"): ("≤", 0.65, 0.5),
    ("short", "infinity"): ("≥", 3.5, None),
    ("short", "vllm"): ("≥", 2.5, None),
    ("short", "sie"): ("≥", 5.0, None),
    ("alone", "infinity"): ("≤", 0.35, 0.15),
    ("batch", "vllm"): ("≥", 2.2, None),
}
"""Of Shoal's figure ÷ the peer's: the bar, and what would be beyond it."""
LEAST_COSINE = 0.999
LIMITS = {"short": 1700.0, "lognormal": 477.0}
"""Texts/s of two Zen 4 cores that did nothing but this model's bf16 products."""
STARTS = 3


class Bench:
    def __init__(self, pairs: int, seconds: float) -> None:
        self.bars = Bars(RESULTS / "peers.json")
        self.failed = 0
        self._pairs, self._seconds = pairs, seconds
        self._store = Store()
        self._folder = self._store.add(MODEL).folder
        self._texts = texts_of_all_lengths()
        self._reference: np.ndarray | None = None

    def measure(self, peer: str, rows: Sequence[str]) -> None:
        """The rows against one peer. Raises NotHere, and RuntimeError where a server does not work."""
        if peer in RECIPES:
            environment(peer, RECIPES[peer].needs)
        starts = []
        for _ in range(STARTS - 1 if "start" in rows and ("start", peer) in BARS else 0):
            with paired(peer, self._store) as pair:
                starts.append(pair.seconds_to_first_vector())
        with paired(peer, self._store) as pair:
            if "start" in rows:
                self._report("start", peer, [*starts, pair.seconds_to_first_vector()])
            for row in (row for row in rows if row != "start"):
                try:
                    self._row(row, peer, pair, is_loaded="lognormal" in rows)
                except RuntimeError as error:
                    self.fail(f"{row} against {peer}: {error}")

    def fail(self, what: str) -> None:
        self.failed += 1
        print(f"FAILED  {what}", flush=True)

    def _row(self, row: str, peer: str, pair: Pair, *, is_loaded: bool) -> None:
        if row == "cosine":
            self._cosines(peer, pair)
        elif row == "memory":
            if not is_loaded:
                pair.speeds(LOADS["lognormal"], self._seconds)
            self._report(row, peer, [pair.megabytes()])
        else:
            speeds = [pair.speeds(LOADS[row], self._seconds) for _ in range(self._pairs)]
            self._report(row, peer, [(figure(row, ours), figure(row, theirs)) for ours, theirs in speeds])
            if DEVICE != "cpu":
                ours, theirs = (statistics.median(s[i].tokens_per_second for s in speeds) for i in (0, 1))
                self.bars.note(f"tokens/s of {row} on {DEVICE}: Shoal", ours)
                self.bars.note(f"tokens/s of {row} on {DEVICE}: {peer}", theirs)

    def _report(self, row: str, peer: str, pairs: list[tuple[float, float]]) -> None:
        """The median of each, and of the ratios of the pairs."""
        ours, theirs = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
        self.bars.note(f"{ROWS[row]}: Shoal beside {peer}", ours)
        self.bars.note(f"{ROWS[row]}: {peer}", theirs)
        ratio = statistics.median(a / b for a, b in pairs)
        what = f"{ROWS[row]}: Shoal ÷ {peer}"
        if (row, peer) in BARS and DEVICE == "cpu":
            self.bars.check(what, ratio, *BARS[row, peer])
        else:
            self.bars.note(what, ratio)
        if row in LIMITS and DEVICE == "cpu":
            self.bars.aim(f"{ROWS[row]}: Shoal beside {peer} ÷ the bf16 limit", ours / LIMITS[row], "≥", 0.75)

    def _cosines(self, peer: str, pair: Pair) -> None:
        if self._reference is None:
            self._reference = reference_vectors(self._folder, self._texts)
        ours, theirs = (worst_cosine(vectors, self._reference) for vectors in pair.vectors(self._texts))
        self.bars.check(f"{ROWS['cosine']}: Shoal beside {peer}", ours, "≥", LEAST_COSINE)
        self.bars.note(f"{ROWS['cosine']}: {peer}", theirs)


def figure(row: str, speed: Speed) -> float:
    return speed.p50_s * 1e3 if row == "alone" else speed.texts_per_second


def reference_vectors(folder: object, texts: list[str]) -> np.ndarray:
    with Worker("st_worker.py", "encoder", folder, "cpu") as worker:
        return np.array(worker.ask("vectors", texts=texts))


def worst_cosine(vectors: list[list[float]], reference: np.ndarray) -> float:
    found = np.array(vectors)
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(reference, axis=1)
    return float(((found * reference).sum(axis=1) / lengths).min())


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--peers", default="infinity,vllm,sie,st", help="which; st is sentence-transformers")
    options.add_argument("--only", default=",".join(ROWS), help="which rows")
    options.add_argument("--seconds", type=float, default=4.0, help="of each measurement, after 1 s of warm-up")
    options.add_argument("--pairs", type=int, default=5)
    options.add_argument("--install", action="store_true", help="only make the environments")
    arguments = options.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    bench = Bench(arguments.pairs, arguments.seconds)
    for peer in chosen(arguments.peers, [*RECIPES, "st"]):
        try:
            if not arguments.install:
                bench.measure(peer, chosen(arguments.only, list(ROWS)))
            elif peer in RECIPES:
                environment(peer, RECIPES[peer].needs)
        except NotHere as reason:
            print(f"        {peer} was not measured: {reason}", flush=True)
        except RuntimeError as error:
            bench.fail(f"{peer}: {error}")
    if DEVICE == "cpu":
        print("        no GPU here: the pytorch runtime in bf16 on one was not measured", flush=True)
    draw(RESULTS / "peers.json", RESULTS / "peers.png", ROWS)
    return 1 if bench.bars.missed or bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
