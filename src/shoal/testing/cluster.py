"""A real cluster for tests and benches: a queue server, gateways and nodes, each a process that can be broken.

Every part can be killed, frozen, thawed, ended and begun again; what it printed stands in its `log`.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from shoal.queue.server import ServerSettings
from shoal.testing.nats import NatsServer, nats_server
from shoal.testing.server import free_port

READY_WITHIN_S = 90.0


class Part:
    """One gateway or node. `words` follow `python -m shoal`; `before` goes before the interpreter."""

    def __init__(self, name: str, words: Sequence[str], folder: Path, before: Sequence[str] = ()) -> None:
        self.name, self.words, self.before = name, list(words), list(before)
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.began = 0.0

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        self.began = time.time()
        command = [*self.before, sys.executable, "-m", "shoal", *self.words]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stderr=log, stdout=log, env=os.environ | {"PYTHONUNBUFFERED": "1"}
            )

    def kill(self) -> None:
        """kill -9: nothing is given back, nobody is told. Does nothing where there is no process."""
        if self.process is not None:
            with contextlib.suppress(OSError):  # one that is frozen would never see that it is alone
                self.thaw()
            self.process.kill()
            self.process.wait()
            self.process = None

    def freeze(self) -> None:
        """SIGSTOP, its runtimes too: connections stay open, nothing is said or done."""
        for pid in (self.pid, *self.runtime_pids()):
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in (*self.runtime_pids(), self.pid):
            os.kill(pid, signal.SIGCONT)

    def ask_to_end(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def end(self, within_s: float = 60.0) -> int:
        """SIGTERM, and its exit code once it has drained. Raises subprocess.TimeoutExpired."""
        self.ask_to_end()
        assert self.process is not None
        code = self.process.wait(within_s)
        self.process = None
        return code

    def runtime_pids(self) -> list[int]:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(pid) for pid in children.read_text().split()]


class Gateway(Part):
    def __init__(self, name: str, words: Sequence[str], folder: Path, port: int) -> None:
        super().__init__(name, ["gateway", "--port", str(port), *words], folder)
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def page(self, path: str) -> tuple[int, bytes]:
        """Status 0 where nobody answers."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=5) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError:
            return 0, b""

    def is_ready(self) -> bool:
        return self.page("/readyz")[0] == 200

    def nodes(self) -> dict[str, Any]:
        """By name, as `/status` shows them."""
        status, body = self.page("/status")
        return {node["node"]: node for node in json.loads(body)["nodes"]} if status == 200 else {}


class Cluster:
    """`url` is the first gateway's."""

    def __init__(self, nats: NatsServer, gateways: list[Gateway], nodes: list[Part], folder: Path) -> None:
        self.nats, self.gateways, self.nodes, self._folder = nats, gateways, nodes, folder

    @property
    def url(self) -> str:
        return self.gateways[0].url

    @property
    def port(self) -> int:
        return self.gateways[0].port

    def add_node(self, home: Path, *options: str) -> Part:
        """One more, begun now."""
        name = f"node-{len(self.nodes) + 1}"
        self.nodes.append(_node(name, self.nats, home, options, self._folder))
        self.nodes[-1].start()
        return self.nodes[-1]

    def add_gateway(self, *options: str) -> Gateway:
        name = f"gateway-{len(self.gateways) + 1}"
        self.gateways.append(_gateway(name, self.nats, options, self._folder))
        self.gateways[-1].start()
        return self.gateways[-1]

    def runtime_pids(self) -> list[int]:
        return [pid for node in self.nodes if node.process is not None for pid in node.runtime_pids()]

    def wait_ready(self, within_s: float = READY_WITHIN_S) -> None:
        """Until every gateway hears of every node that runs, and lacks nothing. Raises RuntimeError."""
        running = {node.name for node in self.nodes if node.process is not None}
        at_work = [gateway for gateway in self.gateways if gateway.process is not None]
        self.until(
            lambda: all(g.is_ready() and running <= _settled(g.nodes()) for g in at_work), "ready", within_s
        )

    def until(self, condition: Callable[[], bool], what: str, within_s: float = READY_WITHIN_S) -> None:
        """Raises RuntimeError, with the end of every log, where it takes too long."""
        end = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > end:
                raise RuntimeError(f"the cluster is not {what}:\n{self.logs()}")
            time.sleep(0.05)

    def logs(self, last: int = 2000) -> str:
        return "\n".join(
            f"--- {part.name}\n{part.log.read_text()[-last:]}" for part in (*self.gateways, *self.nodes)
        )


def _settled(nodes: dict[str, Any]) -> set[str]:
    return {name for name, node in nodes.items() if not node.get("lacking") and not node.get("draining")}


@contextlib.contextmanager
def cluster(
    home: Path | Sequence[Path],
    *,
    nodes: int = 2,
    gateways: int = 1,
    node_options: Sequence[str] = (),
    gateway_options: Sequence[str] = (),
    server: ServerSettings | None = None,
    wait: bool = True,
) -> Iterator[Cluster]:
    """Nodes `node-1`… with the models of `home`, or each with those of its own, gateways `gateway-1`…, all in one
    pool of a queue server."""
    homes = [home] * nodes if isinstance(home, Path) else list(home)
    with tempfile.TemporaryDirectory() as place, nats_server(server) as nats:
        running = Cluster(nats, [], [], Path(place))
        try:
            for own in homes:
                running.add_node(own, *node_options)
            for _ in range(gateways):
                running.add_gateway(*gateway_options)
            if wait:
                running.wait_ready()
            yield running
        finally:
            for part in (*running.nodes, *running.gateways):
                part.kill()


def _node(name: str, nats: NatsServer, home: Path, options: Sequence[str], folder: Path) -> Part:
    return Part(name, ["node", "--name", name, "--nats", nats.url, "--home", str(home), *options], folder)


def _gateway(name: str, nats: NatsServer, options: Sequence[str], folder: Path) -> Gateway:
    return Gateway(name, ["--nats", nats.url, *options], folder, free_port())
