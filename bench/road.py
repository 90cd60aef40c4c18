"""What the road costs, and what it keeps of an engine's speed: the rows that need nobody else's server.

    python bench/road.py [--only ideal,rerank,two,virtual] [--seconds 4] [--pairs 5]

| row | what is compared |
|---|---|
| ideal | MiniLM over HTTP with the same runtime in process, given the same texts (runtime_worker.py) |
| rerank | 100 documents a request with CrossEncoder of sentence-transformers in fp32, once the gate decided |
| two | two models that share a load with each of them alone |
| virtual | processor time an item, on a device that takes none, with a bare ASGI echo's (echo.py) |

Each side in turn, `--pairs` times; the median of the ratios counts. Prints every figure beside its bar, keeps it
in .cache/bench/road.json, and exits 1 where a bar is missed.
"""

import argparse
import statistics
import sys

from bars import RESULTS, Bars
from chosen import chosen
from cost import Cost, cost_of, echoing
from loads import LOADS, make_load
from road_models import ENCODER, MINILM, RERANKER, VIRTUAL, add_reranker, bench_store
from shoal.catalog import Model
from shoal.catalog.profiles import Profiles
from shoal.catalog.store import Store
from shoal.lab import mixes
from shoal.lab.gate_run import judge
from shoal.lab.gate_texts import make_trial
from shoal.lab.load import Request, Target, closed
from shoal.node import devices
from shoal.testing.server import serving
from sides import post, requests, speed_of
from timed import timed
from worker import Worker

DOCUMENTS = 100


class Bench:
    def __init__(self, store: Store, bars: Bars, pairs: int, seconds: float) -> None:
        self._store, self._bars, self._pairs, self._seconds = store, bars, pairs, seconds

    def ideal(self) -> None:
        home = self._store.home
        with (
            serving(home, "--pin", MINILM) as server,
            Worker("runtime_worker.py", home, MINILM, OPENBLAS_NUM_THREADS="1") as runtime,
        ):
            for load in (LOADS["short"], LOADS["lognormal"]):
                asked = requests(load, MINILM)
                pairs = [
                    (
                        self._rate(server.port, asked, load.connections),
                        runtime.ask("load", texts=load.texts, seconds=self._seconds),
                    )
                    for _ in range(self._pairs)
                ]
                what = f"texts/s, {load.name}, {load.connections} connections"
                self._report(what, ("over HTTP", "the runtime in process"), pairs, "≥", 0.85, 0.95)

    def rerank(self) -> None:
        model = add_reranker(self._store)
        self._decide(model)
        query = mixes.texts_of(lambda rng: 12, 1, seed=2)[0]
        documents = mixes.texts_of(lambda rng: rng.randint(30, 64), DOCUMENTS, seed=3)
        body = {"model": RERANKER, "query": query, "documents": documents}
        with (
            serving(self._store.home, "--pin", RERANKER) as server,
            Worker("st_worker.py", "reranker", model.folder, "cpu") as reference,
        ):
            theirs = reference.ask("scores", query=query, documents=documents)
            ranked = post(server.port, "/v1/rerank", body)["results"]
            apart = max(abs(entry["relevance_score"] - theirs[entry["index"]]) for entry in ranked)
            self._bars.check("largest difference of a score to CrossEncoder's in fp32", apart, "≤", 0.01)
            pairs = [
                (
                    1 / timed(lambda turn: post(server.port, "/v1/rerank", body), self._seconds).median_s,
                    1 / reference.ask("load", query=query, documents=documents, seconds=self._seconds),
                )
                for _ in range(self._pairs)
            ]
        names = ("Shoal", "CrossEncoder, fp32")
        self._report("reranks of 100 documents a second", names, pairs, "≥", 2.0)

    def _decide(self, model: Model) -> None:
        """As `shoal gate` does: what passes is what will be served."""
        verdict = judge(model, "bf16", make_trial(model.facts), lambda words: None)
        for figure in verdict.figures:
            what = f"the gate, {verdict.dtype} beside fp32: {figure.what}"
            if figure.sign:
                self._bars.check(what, figure.value, figure.sign, figure.bar)
            else:
                self._bars.note(what, figure.value)
        Profiles(self._store.home, devices.kind()).write(model, verdict.kept("bench/road.py"))

    def two(self) -> None:
        load = LOADS["short"]
        with serving(self._store.home, "--pin", MINILM, "--pin", ENCODER) as server:
            first, second = requests(load, MINILM), requests(load, ENCODER)
            both = [request for pair in zip(first, second, strict=True) for request in pair]
            rounds = [
                [self._rate(server.port, asked, load.connections) for asked in (first, second, both)]
                for _ in range(self._pairs)
            ]
        names = ("both", "the harmonic mean of each alone")
        pairs = [(shared, statistics.harmonic_mean([a, b])) for a, b, shared in rounds]
        self._report("texts/s of two models, half of the load each", names, pairs, "≥", 0.9)

    def virtual(self) -> None:
        single = make_load("single", 128, mixes.short)
        batch = make_load("batch", 32, mixes.short, mixes.BATCH)
        with serving(self._store.home, "--pin", VIRTUAL) as server, echoing() as echo:
            for load, bar, beyond in ((single, 7.0, 4.0), (batch, 2.5, 1.5)):
                asked = requests(load, VIRTUAL)
                costs: list[tuple[Cost, Cost]] = []
                for _ in range(self._pairs):
                    ours = cost_of(server.process.pid, server.port, asked, load.connections, self._seconds)
                    theirs = cost_of(echo.pid, echo.port, asked, load.connections, self._seconds)
                    costs.append((ours, theirs))
                words = f"{load.at_once} a request, {load.connections} connections"
                rate = statistics.median(ours.requests_per_second for ours, _ in costs) * load.at_once
                self._bars.note(f"texts/s that the road sustains, {words}", rate)
                host = statistics.median(ours.children_us for ours, _ in costs) / load.at_once
                self._bars.note(f"µs of processor time, {words}: of an item's, the runtime host's", host)
                pairs = [(ours.us / load.at_once, theirs.us) for ours, theirs in costs]
                names = ("an item", "a request of the bare echo")
                self._report(f"µs of processor time, {words}", names, pairs, "≤", bar, beyond)

    def _rate(self, port: int, asked: list[Request], connections: int) -> float:
        run = closed(Target("127.0.0.1", port), asked, connections, self._seconds)
        return speed_of(run, "Shoal").texts_per_second

    def _report(
        self,
        what: str,
        names: tuple[str, str],
        pairs: list[tuple[float, float]],
        sign: str,
        bar: float,
        beyond: float | None = None,
    ) -> None:
        """The median of each, and the median ratio beside its bar."""
        for i, name in enumerate(names):
            self._bars.note(f"{what}: {name}", statistics.median(pair[i] for pair in pairs))
        ratio = statistics.median(a / b for a, b in pairs)
        self._bars.check(f"{what}: {names[0]} ÷ {names[1]}", ratio, sign, bar, beyond)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rows = ("ideal", "rerank", "two", "virtual")
    options.add_argument("--only", default=",".join(rows), help="which rows")
    options.add_argument("--seconds", type=float, default=4.0, help="of each measurement, after 1 s of warm-up")
    options.add_argument("--pairs", type=int, default=5)
    arguments = options.parse_args()
    bars = Bars(RESULTS / "road.json")
    bench = Bench(bench_store(), bars, arguments.pairs, arguments.seconds)
    for row in chosen(arguments.only, rows):
        getattr(bench, row)()
    return 1 if bars.missed else 0


if __name__ == "__main__":
    sys.exit(main())
