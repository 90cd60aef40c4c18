"""What the cluster bench measures, as processes of this machine: a cluster, or servers of one node each behind
somebody else's router. Knows no figure."""

import contextlib
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bars import RESULTS
from routers import Router
from shoal.lab.processes import Processes
from shoal.testing import cluster as testing
from shoal.testing.server import free_port, serving
from tree import Tree

LOGS = RESULTS / "cluster-logs"
READY_WITHIN_S = 240.0
ROUTER_WITHIN_S = 30.0


class Fleet(msgspec.Struct, frozen=True):
    """`port` is where requests go. `pids` by role: gateway, queue, node; or server, router."""

    port: int
    pids: dict[str, list[int]]
    queue_url: str = ""

    @property
    def all_pids(self) -> list[int]:
        return [pid for pids in self.pids.values() for pid in pids]

    def cpu_s(self) -> float:
        return Processes(self.all_pids).cpu_s()

    def freeze(self) -> None:
        for pid in self.all_pids:
            Tree(pid).settle()
            Tree(pid).freeze()

    def thaw(self) -> None:
        for pid in self.all_pids:
            Tree(pid).thaw()


@contextlib.contextmanager
def cluster(home: Path, nodes: int, pin: Sequence[str], *options: str) -> Iterator[Fleet]:
    """A queue server, a gateway and so many nodes that hold what is pinned; `options` are the nodes'."""
    with testing.cluster(home, nodes=nodes, node_options=[*_pins(pin), *options], wait=False) as started:
        started.wait_ready(READY_WITHIN_S)
        assert started.nats.process is not None
        pids = {
            "gateway": [started.gateways[0].pid],
            "queue": [started.nats.process.pid],
            "node": [node.pid for node in started.nodes],
        }
        yield Fleet(started.port, pids, started.nats.url)


@contextlib.contextmanager
def servers(home: Path, pins: Sequence[Sequence[str]], *options: str) -> Iterator[list[Fleet]]:
    """A `shoal serve` for each entry of `pins`, which says what it holds."""
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(serving(home, *_pins(pin), *options, wait=False)) for pin in pins]
        for server in started:
            server.wait_ready(READY_WITHIN_S)
        yield [Fleet(server.port, {"server": [server.process.pid]}) for server in started]


@contextlib.contextmanager
def behind(router: Router, members: Sequence[Fleet]) -> Iterator[Fleet]:
    """The same servers behind a router. Raises RuntimeError where it does not start, NotHere."""
    port = free_port()
    LOGS.mkdir(parents=True, exist_ok=True)
    command = router.command(port, [f"127.0.0.1:{member.port}" for member in members], LOGS)
    log = LOGS / f"{router.name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        _wait(port, process, log)
        pids = [pid for member in members for pid in member.pids["server"]]
        yield Fleet(port, {"router": [process.pid], "server": pids})
    finally:
        if process.poll() is None:
            Tree(process.pid).end()
        process.wait()


def _wait(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Until a router gives what a server says. Raises RuntimeError."""
    until = time.monotonic() + ROUTER_WITHIN_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5).close()
            return
        time.sleep(0.1)
    raise RuntimeError(f"it is not ready: {log.read_text(errors='replace')[-1000:]}")


def _pins(names: Sequence[str]) -> list[str]:
    return [word for name in names for word in ("--pin", name)]
