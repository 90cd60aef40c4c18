"""The rows of bench/cluster.py about one model on many virtual devices: what they do within the latency target."""

import argparse
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path

import virtual_load as v
from bars import Bars
from chosen import chosen
from environments import NotHere
from knees import Measured, Search
from processes import Fleet, behind, cluster, servers
from routers import LEAST_CONN, ROUND_ROBIN, ROUTERS, Router
from shoal.lab import mixes
from shoal.lab.load import Request
from sides import ROUTE, post

PACKED, PADDED, STALLING = "bench/packed", "bench/padded", "bench/stalling"
LOW, HIGH = 0.3, 1.05
NEARBY = 1.2
"""The knee of twice as many devices is looked for this near to that of fewer, as a share of their peak."""
LOW_OF_ROUTERS = 0.1
NEAR_OF_ROUTERS = 1.08
TEXTS, LARGE_NODES = 1000, 4
STALL_LOAD = 0.6
GAINS = {ROUND_ROBIN.name: 2.5, LEAST_CONN.name: 1.5}
GAIN_OF_VLLM = 1.2


class Capacity:
    def __init__(self, bars: Bars, arguments: argparse.Namespace) -> None:
        self._bars = bars
        self._dilation, self._nodes = arguments.dilation, arguments.nodes
        self._routers = [ROUTERS[name] for name in chosen(arguments.routers, list(ROUTERS))]
        self._target_s = v.TARGET_S * self._dilation
        self._folder = tempfile.TemporaryDirectory(prefix="shoal-bench-")
        self._home = Path(self._folder.name)
        cards = [
            v.card(PACKED, self._dilation, padded=False),
            v.card(PADDED, self._dilation, padded=True),
            v.card(STALLING, self._dilation, padded=False, stalls=True),
        ]
        self._models = {model.name: model for model in v.add(self._home, *cards)}
        self._peaks: dict[str, float] = {}
        self._knees: dict[str, Measured] = {}

    def scaling(self) -> None:
        """Against the smallest fleet's share of its peak, so that devices, not requests, are counted."""
        low, high = LOW, HIGH
        useful = {}
        for nodes in (1, 2, 4, 8):
            found = self._pulled(PACKED, nodes, low, high)
            useful[nodes] = found.useful_tokens_per_second
            low, high = found.share / NEARBY, min(HIGH, found.share * NEARBY)
        for nodes in (2, 4, 8):
            what = f"useful tokens/s at the knee, {nodes} devices ÷ {nodes} times one's"
            self._bars.check(what, useful[nodes] / nodes / useful[1], "≥", 0.95)

    def packed(self) -> None:
        self._share_of_peak(PACKED, 0.80)

    def padded(self) -> None:
        self._share_of_peak(PADDED, 0.65)

    def routers(self) -> None:
        """Pull against each, padded."""
        pull = self._knees.get(PADDED) or self._pulled(PADDED, self._nodes)
        asked = v.lognormal_requests([PADDED])
        with servers(self._home, [[PADDED]] * self._nodes) as members:
            for router in self._routers:
                print(f"      {router.name}:", flush=True)
                try:
                    with behind(router, members) as fleet:
                        search = self._search(fleet, asked, self._nodes * self._peak(PADDED))
                        knee = search.knee(LOW_OF_ROUTERS, HIGH, NEAR_OF_ROUTERS)
                except (NotHere, RuntimeError) as reason:
                    print(f"        {router.name} was not measured: {reason}", flush=True)
                    continue
                self._compare(router, pull, knee)

    def stalls(self) -> None:
        asked = v.lognormal_requests([STALLING])
        with self._cluster(self._nodes, STALLING) as fleet:
            search = self._search(fleet, asked, self._nodes * self._peak(PACKED))
            search.warm_up()
            seen = [search.at(STALL_LOAD, windows=3.0) for _ in range(2)]
        over = sum(each.over for each in seen) / len(seen)
        words = f"{v.STALL_SHARE:.1%} of batches stalled {v.STALL_S * 1e3:g} ms, at 60 % load"
        self._bars.check(f"% of requests over the target where {words}", over * 100, "≤", 0.7)

    def large(self) -> None:
        texts = mixes.texts_of(v.lognormal, TEXTS, seed=5)
        took = {}
        for nodes in (1, LARGE_NODES):
            with self._cluster(nodes, PACKED) as fleet:
                body = {"model": PACKED, "input": texts, "encoding_format": "base64"}
                post(fleet.port, ROUTE, body | {"input": texts[:50]})
                time.sleep(1)
                began = time.perf_counter()
                answer = post(fleet.port, ROUTE, body)
                took[nodes] = time.perf_counter() - began
                if [entry["index"] for entry in answer["data"]] != list(range(TEXTS)):
                    raise RuntimeError("the texts of a large request came back in another order")
            self._bars.note(f"s of a request of {TEXTS} texts, {nodes} idle nodes", took[nodes])
        what = f"a request of {TEXTS} texts, one node's time ÷ that of {LARGE_NODES}"
        self._bars.check(what, took[1] / took[LARGE_NODES], "≥", 3.0)

    def _share_of_peak(self, name: str, bar: float) -> None:
        found = self._pulled(name, self._nodes)
        share = found.useful_tokens_per_second / (self._nodes * self._peak(name))
        self._bars.check(f"{_kind(name)}, {self._nodes} nodes at the knee: useful tokens ÷ peak", share, "≥", bar)

    def _pulled(self, name: str, nodes: int, low: float = LOW, high: float = HIGH) -> Measured:
        """The knee of so many nodes. Raises RuntimeError where there is none."""
        peak = nodes * self._peak(name)
        with self._cluster(nodes, name) as fleet:
            found = self._search(fleet, v.lognormal_requests([name]), peak).knee(low, high)
        if found is None:
            raise RuntimeError(f"{nodes} nodes do not keep the target even at {low:.0%} of their peak")
        words = f"{_kind(name)}, {nodes} nodes"
        self._bars.note(f"useful tokens/s at the knee, dilation taken out, {words}", self._real(found))
        self._bars.note(f"cores used at the knee, {words}", found.cores)
        if nodes == self._nodes:
            self._knees[name] = found
        return found

    def _compare(self, router: Router, pull: Measured, knee: Measured | None) -> None:
        what = f"padded, {self._nodes} nodes at the knee: pull ÷ {router.name}"
        if knee is None:
            print(f"ok      {what}: it fails the target at {LOW_OF_ROUTERS:.0%} of the peak", flush=True)
            return
        self._bars.note(f"useful tokens/s at the knee, dilation taken out, {router.name}", self._real(knee))
        ratio = pull.useful_tokens_per_second / knee.useful_tokens_per_second
        self._bars.check(what, ratio, "≥", GAINS.get(router.name, GAIN_OF_VLLM))

    def _cluster(self, nodes: int, name: str) -> AbstractContextManager[Fleet]:
        return cluster(self._home, nodes, [name], *v.aim(self._dilation))

    def _search(self, fleet: Fleet, asked: list[Request], peak: float) -> Search:
        return Search(fleet.port, asked, peak, self._target_s, fleet.cpu_s)

    def _peak(self, name: str) -> float:
        """Of one device, measured once in a run."""
        if name not in self._peaks:
            self._peaks[name] = v.peak(self._models[name])
            real = self._peaks[name] * self._dilation
            self._bars.note(f"tokens/s of one device at its peak, dilation taken out, {_kind(name)}", real)
        return self._peaks[name]

    def _real(self, measured: Measured) -> float:
        return measured.useful_tokens_per_second * self._dilation


def _kind(name: str) -> str:
    return name.removeprefix("bench/")
