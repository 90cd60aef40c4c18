"""The rows of bench/fleet.py about computing and holding adapters, on one server."""

import argparse
import random
import statistics
from collections.abc import Sequence

from bars import Bars
from fleet_models import adapters_of_rank, fleet_store
from loads import LOADS
from road_models import MINILM
from shoal.catalog import Model
from shoal.lab.load import Request, Target, closed
from shoal.lab.processes import Processes
from shoal.testing.adapters import linears
from shoal.testing.server import Server, serving
from sides import Load, post, requests, speed_of
from worker import Worker

MIXED, RESIDENT = 16, 64
LOADED = (LOADS["short"], LOADS["lognormal"])


class Speeds:
    def __init__(self, bars: Bars, arguments: argparse.Namespace) -> None:
        self._bars, self._pairs, self._seconds = bars, arguments.pairs, arguments.seconds
        self._store = fleet_store()
        self._base = self._store.resolve(MINILM)

    def mixed(self) -> None:
        for rank in (8, 16):
            adapters = adapters_of_rank(self._store, rank, MIXED)
            with serving(self._store.home, "--pin", MINILM) as server:
                _use(server, adapters)
                for load in LOADED:
                    alone, asked = requests(load, MINILM), _spread(load, adapters)
                    pairs = [
                        (self._rate(server, asked, load), self._rate(server, alone, load))
                        for _ in range(self._pairs)
                    ]
                    what = f"texts/s, {load.name}, {load.connections} connections"
                    adapted = f"{what}: {MIXED} adapters of rank {rank} mixed"
                    self._bars.note(adapted, statistics.median(ours for ours, _ in pairs))
                    self._bars.note(f"{what}: the base alone", statistics.median(base for _, base in pairs))
                    ratio = statistics.median(ours / base for ours, base in pairs)
                    if rank == 8:
                        self._bars.check(f"{adapted} ÷ the base alone", ratio, "≥", 0.75)
                    else:
                        self._bars.note(f"{adapted} ÷ the base alone", ratio)

    def switching(self) -> None:
        adapters = adapters_of_rank(self._store, 8, MIXED)
        folders = [adapter.folder for adapter in adapters]
        with (
            serving(self._store.home, "--pin", MINILM) as server,
            Worker("fleet_worker.py", self._base.folder, *folders) as peft,
        ):
            _use(server, adapters)
            for load in LOADED:
                theirs = {"texts": load.texts, "owners": _owners(load, MIXED), "at_once": load.connections}
                asked = _spread(load, adapters)
                pairs = [
                    (self._rate(server, asked, load), peft.ask("load", **theirs, seconds=self._seconds))
                    for _ in range(self._pairs)
                ]
                what = f"texts/s, {load.name}, {MIXED} adapters of rank 8"
                self._bars.note(f"{what}: PEFT, switched", statistics.median(theirs for _, theirs in pairs))
                ratio = statistics.median(ours / theirs for ours, theirs in pairs)
                self._bars.check(f"{what}: mixed ÷ switched batch by batch", ratio, "≥", 3.0)

    def resident(self) -> None:
        """The load is the same before and after; what the base itself grew by, shape by shape, is in both."""
        load, adapters = LOADED[1], adapters_of_rank(self._store, 8, RESIDENT)
        with serving(self._store.home, "--pin", MINILM) as server:
            for _ in range(3):
                self._rate(server, requests(load, MINILM), load)
            before = Processes([server.process.pid]).memory().pss_bytes
            _use(server, adapters)
            for _ in range(3):
                self._rate(server, _spread(load, adapters), load)
            grown = Processes([server.process.pid]).memory().pss_bytes - before
        held = sum(_bytes_of(adapter) for adapter in adapters)
        base = sum(4 * rows * columns for _, (rows, columns) in linears(self._base.folder))
        self._bars.note(f"MB of {RESIDENT} adapters of rank 8, in their files", held / 1e6)
        self._bars.note("MB of one copy of the base's linears, in their file", base / 1e6)
        self._bars.note(f"MB that the server grew by with {RESIDENT} adapters in use", grown / 1e6)
        ratio = (grown - base) / held
        self._bars.check("what it grew by, less one copy of the base, ÷ the adapters' bytes", ratio, "≤", 1.15)

    def _rate(self, server: Server, asked: list[Request], load: Load) -> float:
        run = closed(Target("127.0.0.1", server.port), asked, load.connections, self._seconds)
        return speed_of(run, "Shoal").texts_per_second


def _owners(load: Load, adapters: int) -> list[int]:
    """Which adapter each text is for, in no order."""
    chance = random.Random(5)
    return [chance.randrange(adapters) for _ in load.texts]


def _spread(load: Load, adapters: Sequence[Model]) -> list[Request]:
    owners = _owners(load, len(adapters))
    by_adapter = [requests(load, adapter.name) for adapter in adapters]
    return [by_adapter[owner][place] for place, owner in enumerate(owners)]


def _use(server: Server, adapters: Sequence[Model]) -> None:
    """So that all of them are in memory."""
    for adapter in adapters:
        post(server.port, "/v1/embeddings", {"model": adapter.name, "input": "a lantern in the meadow"})


def _bytes_of(adapter: Model) -> int:
    return (adapter.folder / "adapter_model.safetensors").stat().st_size
