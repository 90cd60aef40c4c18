"""A node that the network cuts off and that comes back: queue server and nodes in namespaces of their own."""

import asyncio
import contextlib
import os
import secrets
import subprocess
from pathlib import Path

import pytest

from cluster.asking import Asking, until
from names import VIRTUAL
from shoal.queue.server import ServerSettings
from shoal.testing.cluster import Cluster, Gateway, Part
from shoal.testing.nats import NatsServer
from shoal.testing.server import free_port

QUEUE, HERE, NODES = "10.231.77.1", "10.231.77.254", ("10.231.77.11", "10.231.77.12")


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"network namespaces cannot be made here: ip {' '.join(words)}: {done.stderr.strip()}")


class Network:
    """One bridge in the queue server's namespace; a cable to each node's, and one to ours, where gateways run."""

    def __init__(self):
        self.tag = secrets.token_hex(2)
        self.queue = f"shoal-{self.tag}-q"
        self.nodes = [f"shoal-{self.tag}-{number}" for number in range(len(NODES))]

    def lay(self) -> None:
        ip("netns", "add", self.queue)
        ip("-n", self.queue, "link", "set", "lo", "up")
        ip("-n", self.queue, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.queue, "addr", "add", f"{QUEUE}/24", "dev", "bridge")
        ip("-n", self.queue, "link", "set", "bridge", "up")
        for number, (name, address) in enumerate(zip(self.nodes, NODES, strict=True)):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            self._cable(f"q{self.tag}{number}", f"n{self.tag}{number}")
            ip("link", "set", f"n{self.tag}{number}", "netns", name)
            ip("-n", name, "addr", "add", f"{address}/24", "dev", f"n{self.tag}{number}")
            ip("-n", name, "link", "set", f"n{self.tag}{number}", "up")
        self._cable(f"q{self.tag}h", f"h{self.tag}")
        ip("addr", "add", f"{HERE}/24", "dev", f"h{self.tag}")
        ip("link", "set", f"h{self.tag}", "up")

    def _cable(self, at_queue: str, other: str) -> None:
        ip("link", "add", at_queue, "type", "veth", "peer", "name", other)
        ip("link", "set", at_queue, "netns", self.queue)
        ip("-n", self.queue, "link", "set", at_queue, "master", "bridge")
        ip("-n", self.queue, "link", "set", at_queue, "up")

    def cut(self, number: int) -> None:
        """Nothing gets through any more, and nobody is told."""
        ip("-n", self.queue, "link", "set", f"q{self.tag}{number}", "nomaster")

    def join(self, number: int) -> None:
        ip("-n", self.queue, "link", "set", f"q{self.tag}{number}", "master", "bridge")

    def remove(self) -> None:
        for name in (*self.nodes, self.queue):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", f"h{self.tag}"], capture_output=True, check=False)


class NatsElsewhere(NatsServer):
    namespace = ""

    def command(self) -> list[str]:
        return [*inside(self.namespace), *super().command()]


def inside(namespace: str) -> list[str]:
    return ["ip", "netns", "exec", namespace]


@pytest.fixture
def network():
    if os.geteuid() != 0:
        pytest.skip("network namespaces are for root to make")
    network = Network()
    try:
        network.lay()
        yield network
    finally:
        network.remove()


@contextlib.contextmanager
def spread(network: Network, home: Path, folder: Path):
    """A gateway here, everything else over there."""
    nats = NatsElsewhere(ServerSettings(folder=folder, host=QUEUE, port=free_port()))
    nats.namespace = network.queue
    nats.start()
    join = ["--nats", nats.url]
    nodes = [
        Part(
            f"node-{number}",
            ["node", *join, "--home", str(home), "--name", f"node-{number}", "--pin", VIRTUAL],
            folder,
            inside(namespace),
        )
        for number, namespace in enumerate(network.nodes)
    ]
    cluster = Cluster(nats, [Gateway("gateway", join, folder, free_port())], nodes, folder)
    parts = [*cluster.gateways, *nodes]
    try:
        for part in parts:
            part.start()
        cluster.wait_ready()
        yield cluster
    finally:
        for part in parts:
            part.kill()
        nats.kill()


@pytest.mark.slow
async def test_a_node_cut_off_for_ten_seconds_costs_no_answer_and_works_again_when_it_is_back(
    network, virtual_home, tmp_path
):
    with spread(network, virtual_home, tmp_path) as running:
        gateway = running.gateways[0]
        async with Asking(running.url) as asking:
            await asking.more(200)
            for number in range(2):
                network.cut(number)
                await asyncio.sleep(10)
                assert set(gateway.nodes()) == {f"node-{1 - number}"}, "the other is silent"
                network.join(number)
                await until(lambda: set(gateway.nodes()) == {"node-0", "node-1"})
                await asking.more(200)
            await until(lambda: all(useful(node) > 0 for node in gateway.nodes().values()))
        asking.report("each node cut off for ten seconds")
    assert asking.wrong == []
    assert not asking.broken
    assert not asking.refused


def useful(node: dict) -> float:
    return sum(line.get("useful_tokens_per_s", 0.0) for line in node.get("lines", {}).values())
