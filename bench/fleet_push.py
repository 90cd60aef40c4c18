"""The rows of bench/fleet.py about pushing adapters to a cluster of three nodes, by the client that comes with
Shoal."""

import argparse
import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import shoal
from bars import Bars
from fleet_models import PUSHED_RANK, adapter_folder, fleet_store
from loads import LOADS
from road_models import MINILM
from shoal.catalog import Model
from shoal.families import Prepared
from shoal.lab.load import Target, closed, open_loop
from shoal.node.devices import default_profile
from shoal.protocol.items import Item
from shoal.protocol.tensors import Array
from shoal.runtimes import Adapting, open_runtime
from shoal.testing import cluster as testing
from sides import requests, speed_of

NODES = 3
TEXT = "Where do the boats of this harbour land their catch?"
SAME = 0.999
SHARE = 0.3
"""Of what the cluster can do: traffic that leaves room for what a push has to compute."""
CALM_S = 12.0


class Pushing:
    def __init__(self, bars: Bars, arguments: argparse.Namespace) -> None:
        self._bars, self._pairs, self._seconds = bars, arguments.pairs, arguments.seconds
        self._pushes: int = arguments.pushes
        self._store = fleet_store()
        self._base = self._store.resolve(MINILM)
        self._folders = [adapter_folder(self._base.folder, PUSHED_RANK, number) for number in range(self._pushes)]

    def push(self) -> None:
        right = [_reference(self._base, folder) for folder in self._folders]
        with self._cluster() as running, shoal.Client(running.url) as client:
            seconds = [
                self._until_right(client, f"bench/pushed-{number}", folder, vector)
                for number, (folder, vector) in enumerate(zip(self._folders, right, strict=True))
            ]
        size = (self._folders[0] / "adapter_model.safetensors").stat().st_size
        self._bars.note("MB of a pushed adapter", size / 1e6)
        self._bars.note("s from a push to the first right answer, median", statistics.median(seconds))
        worst = float(np.percentile(seconds, 95))
        self._bars.check(f"s from a push to the first right answer, p95 of {len(seconds)}", worst, "≤", 5.0)

    def calm(self) -> None:
        """The pushes are spread evenly over the time in which latency is measured."""
        load = LOADS["short"]
        asked = requests(load, MINILM)
        rounds = []
        with self._cluster() as running:
            target = Target("127.0.0.1", running.port)
            able = speed_of(closed(target, asked, load.connections, self._seconds), "Shoal").texts_per_second

            def p99_s() -> float:
                run = open_loop(target, asked, SHARE * able, CALM_S, 1.0, load.connections)
                speed_of(run, "Shoal")
                return run.percentile(0.99)

            for turn in range(max(1, self._pairs // 2)):
                idle = p99_s()
                pushing = threading.Thread(target=self._push_all, args=(running.url, turn))
                pushing.start()
                rounds.append((idle, p99_s()))
                pushing.join()
        self._bars.note("ms, p99 of the base's traffic, idle", statistics.median(idle for idle, _ in rounds) * 1e3)
        what = f"p99 of the base's traffic while {self._pushes} adapters are pushed"
        self._bars.note(f"ms, {what}", statistics.median(busy for _, busy in rounds) * 1e3)
        self._bars.check(f"{what} ÷ idle", statistics.median(busy / idle for idle, busy in rounds), "≤", 1.5)

    @contextlib.contextmanager
    def _cluster(self) -> Iterator[testing.Cluster]:
        with tempfile.TemporaryDirectory(prefix="shoal-bench-") as objects:
            kept = ["--objects", objects]
            with testing.cluster(
                self._store.home, nodes=NODES, node_options=["--pin", MINILM, *kept], gateway_options=kept
            ) as running:
                yield running

    def _push_all(self, url: str, turn: int) -> None:
        with shoal.Client(url) as client:
            began = time.monotonic()
            for place, folder in enumerate(self._folders):
                time.sleep(max(0.0, began + place * CALM_S / len(self._folders) - time.monotonic()))
                client.push(folder, f"bench/calm-{turn}-{place}", base=MINILM)

    def _until_right(self, client: shoal.Client, name: str, folder: Path, right: Array) -> float:
        """Raises RuntimeError where the first answer is another than the runtime's own."""
        began = time.perf_counter()
        client.push(folder, name, base=MINILM)
        vector = client.encode(name, [TEXT])[0]
        took = time.perf_counter() - began
        if float(vector @ right) < SAME:
            raise RuntimeError(f"{name} answers at cosine {float(vector @ right):.4f} to the right vector")
        return took


def _reference(base: Model, folder: Path) -> Array:
    """What the runtime gives for `TEXT` by itself."""
    runtime = open_runtime(base.folder, base.facts, default_profile(base.facts, base.card.tolerance))
    assert isinstance(runtime, Adapting)
    runtime.take_adapter("adapter", folder)
    (prepared,) = runtime.prepare([Item(TEXT, normalize=True, adapter="adapter")])
    assert isinstance(prepared, Prepared)
    return runtime.run([prepared], 0).rows[0]["dense"]
