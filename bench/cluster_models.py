"""The row of bench/cluster.py about many models: 30 on 8 nodes, asked for in proportion to 1/rank (Zipf), all of
them in memory everywhere, or with room for 10 on each node. Side by side, without bars."""

import argparse
import json
import tempfile
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import virtual_load as v
from bars import Bars
from environments import NotHere
from knees import Search
from placing import placed
from processes import Fleet, behind, cluster, servers
from routers import LEAST_CONN, ROUND_ROBIN, by_hand

MODELS = [f"bench/zipf-{rank:02d}" for rank in range(1, 31)]
ROOM = 10
SPARE = 1.3
"""What a model's memory is multiplied by: it grows while it serves."""
LOW, HIGH, NEAR = 0.05, 1.0, 1.15


class ManyModels:
    def __init__(self, bars: Bars, arguments: argparse.Namespace) -> None:
        self._bars = bars
        self._dilation, self._nodes = arguments.dilation, arguments.nodes
        self._folder = tempfile.TemporaryDirectory(prefix="shoal-bench-")
        self._home = Path(self._folder.name)
        added = v.add(self._home, *(v.card(name, self._dilation, padded=True) for name in MODELS))
        self._peak = v.peak(added[0])
        self._asked = v.lognormal_requests(MODELS, native=True)

    def zipf(self) -> None:
        """1. All resident, which also tells what a model takes. 2. Room for 10. 3. Placed by hand, 10 on a server:
        the more a model is asked for, the more servers hold it."""
        if self._nodes * ROOM < len(MODELS):
            raise NotHere(f"{len(MODELS)} models have no room on {self._nodes} nodes of {ROOM}")
        bytes_each, aim = [0], v.aim(self._dilation)

        def pulling(pin: Sequence[str], *options: str) -> AbstractContextManager[Fleet]:
            return cluster(self._home, self._nodes, pin, *aim, *options)

        self._row("pull, all resident", lambda: pulling(MODELS), lambda fleet: bytes_each.append(_largest(fleet)))
        with servers(self._home, [MODELS] * self._nodes) as members:
            for router in (ROUND_ROBIN, LEAST_CONN):
                self._row(f"{router.name}, all resident", lambda router=router: behind(router, members))
        room = f"{int(max(bytes_each) * ROOM * SPARE) // 1_000_000}MB"
        if max(bytes_each):
            self._row(f"pull, room for {ROOM}", lambda: pulling([], "--memory", room))
            with servers(self._home, [[]] * self._nodes, "--memory", room) as members:
                self._row(f"{LEAST_CONN.name}, room for {ROOM}", lambda: behind(LEAST_CONN, members))
        places = placed([1 / (rank + 1) for rank in range(len(MODELS))], self._nodes, ROOM)
        at = dict(zip(MODELS, places, strict=True))
        held = [[name for name in MODELS if server in at[name]] for server in range(self._nodes)]
        with servers(self._home, held) as members:
            router = by_hand(at)
            self._row(f"nginx least_conn, placed by hand, {ROOM} each", lambda: behind(router, members))

    def _row(
        self,
        what: str,
        start: Callable[[], AbstractContextManager[Fleet]],
        look: Callable[[Fleet], object] = lambda fleet: None,
    ) -> None:
        words = f"padded, {self._nodes} nodes, {len(MODELS)} Zipf models, useful tokens ÷ peak at the knee: {what}"
        try:
            with start() as fleet:
                peak = self._nodes * self._peak
                search = Search(fleet.port, self._asked, peak, v.TARGET_S * self._dilation, fleet.cpu_s)
                search.warm_up()
                look(fleet)
                knee = search.knee(LOW, HIGH, NEAR)
        except NotHere as reason:
            print(f"        {what} was not measured: {reason}", flush=True)
            return
        if knee is None:
            print(f"        {words}: fails the target at {LOW:.0%} of the peak", flush=True)
        else:
            self._bars.note(words, knee.useful_tokens_per_second / peak)


def _largest(fleet: Fleet) -> int:
    """Bytes of the model that takes most, on one node."""
    with urllib.request.urlopen(f"http://127.0.0.1:{fleet.port}/status", timeout=30) as answer:
        nodes = json.loads(answer.read())["nodes"]
    return max((status["memory_bytes"] for node in nodes for status in node["models"].values()), default=0)
