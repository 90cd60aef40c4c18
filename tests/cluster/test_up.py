"""`shoal up`: a whole cluster from one command, its children begun again, replaced under load, ended in order."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from cluster.asking import Asking, client_of, encode, until
from names import VIRTUAL
from shoal.cli._up import Plan, read_plan, words
from shoal.protocol.errors import InvalidInput
from shoal.testing.server import free_port

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "cluster.toml"


class Up:
    def __init__(self, log: Path, *options: str):
        self.port, self.log = free_port(), log
        self.url = f"http://127.0.0.1:{self.port}"
        words = ["up", *options, "--port", str(self.port), "--queue-port", str(free_port())]
        with log.open("wb") as stderr:
            self.process = subprocess.Popen([sys.executable, "-m", "shoal", *words], stderr=stderr, stdout=stderr)

    def is_up(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5):
                return "the cluster is up" in self.log.read_text()
        except OSError:
            return False

    def wait_up(self, within_s: float = 90.0) -> None:
        until = time.monotonic() + within_s
        while not self.is_up():
            assert time.monotonic() < until, self.log.read_text()[-3000:]
            time.sleep(0.05)

    def children(self) -> dict[str, int]:
        """Process ids by what they are; of several of a kind any."""
        found = {}
        for pid in self.child_pids():
            command = command_of(pid)
            found[command[3] if "-m" in command else Path(command[0]).name] = pid
        return found

    def child_pids(self) -> list[int]:
        return children_of(self.process.pid)


def children_of(pid: int) -> list[int]:
    """Of its first thread, which starts all of them."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def pipe_of_turns(pid: int) -> str:
    variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
    (fds,) = [each.partition("=")[2] for each in variables if each.startswith("SHOAL_TURNS=")]
    return str(Path(f"/proc/{pid}/fd/{fds.split(',')[0]}").readlink())


@pytest.fixture
def up(virtual_home, tmp_path):
    running = []

    def up(*options: str) -> Up:
        running.append(Up(tmp_path / f"up-{len(running)}.log", "--home", str(virtual_home), *options))
        running[-1].wait_up()
        return running[-1]

    yield up
    for one in running:
        if one.process.poll() is None:
            one.process.terminate()
            one.process.wait(60)


async def test_it_answers_begins_killed_children_again_and_ends_in_order(up):
    cluster = up("--nodes", "1", "--gateways", "1")
    async with client_of(cluster.url) as client:
        assert (await encode(client, "hello")).status_code == 200
        before = cluster.children()
        assert set(before) == {"node", "gateway", "nats-server"}
        for kind in ("node", "gateway", "nats-server"):
            os.kill(before[kind], signal.SIGKILL)
        await until(lambda: set(cluster.children()) == set(before) and cluster.children() != before)
    async with client_of(cluster.url) as client:
        await until_answered(client)
    cluster.process.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(cluster.process.wait, 60) == 0
    ends = [
        line for line in cluster.log.read_text().splitlines() if re.search(r"stopped|Server Exiting|is down", line)
    ]
    assert [line.split()[0] for line in ends[:3]] == ["gateway-1", "node-1", "queue"]
    assert "the cluster is down" in ends[3]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has turns")
async def test_its_nodes_share_the_turns_at_the_processor(up):
    cluster = up("--nodes", "2", "--pin", VIRTUAL)
    nodes = [pid for pid in cluster.child_pids() if "node" in command_of(pid)]
    async with client_of(cluster.url) as client:
        assert (await encode(client, "hello")).status_code == 200
    runtimes = [runtime for node in nodes for runtime in children_of(node)]
    assert [len(nodes), len(runtimes)] == [2, 2]
    assert len({pipe_of_turns(pid) for pid in nodes + runtimes}) == 1


@pytest.mark.parametrize(
    ("words", "toml", "said"),
    [
        (["--pin", "nope"], "", "node-[12] cannot be started as it is configured: no model is called 'nope'"),
        (
            [],
            "[node]\nmemroy = '1GB'\n",
            "node-[12] cannot be started as it is configured: No such option: --memroy",
        ),
        ([], "[gateway]\nkey-file = '/nowhere'\n", "gateway-1 cannot be started .*: /nowhere: No such file"),
    ],
)
def test_what_can_never_start_ends_it_with_one_clear_line(virtual_home, tmp_path, words, toml, said):
    file = tmp_path / "cluster.toml"
    file.write_text(f"nodes = 2\nport = {free_port()}\n[queue]\nport = {free_port()}\n{toml}")
    command = [sys.executable, "-m", "shoal", "up", "--home", str(virtual_home), *words, str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert ran.returncode == 1
    assert re.search(f"^error: {said}", ran.stderr, re.MULTILINE)
    assert "again_in_s" not in ran.stderr


async def until_answered(client) -> None:
    async with asyncio.timeout(60):
        while (await encode(client, "again")).status_code != 200:
            await asyncio.sleep(0.1)


async def test_killed_itself_it_leaves_no_child_behind(up):
    cluster = up("--nodes", "1")
    pids = list(cluster.children().values())
    cluster.process.kill()
    cluster.process.wait()
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


@pytest.mark.slow
async def test_replacing_every_gateway_and_node_under_load_fails_no_request(up):
    cluster = up("--nodes", "2", "--gateways", "2", "--pin", VIRTUAL)
    async with Asking(cluster.url, askers=24) as asking:
        await asking.more(300)
        for turn in range(1, 3):
            cluster.process.send_signal(signal.SIGHUP)
            await until(lambda turn=turn: cluster.log.read_text().count("replaced child=") == 4 * turn, 120)
            await asking.more(300)
    asking.report("every gateway and node replaced twice")
    assert asking.wrong == []
    assert not asking.broken
    assert not asking.refused


def test_the_example_file_is_a_plan():
    plan = read_plan(EXAMPLE)
    assert isinstance(plan.nodes, list)
    assert plan.gateways >= 1


def test_what_a_file_says_wrongly_is_named(tmp_path):
    file = tmp_path / "cluster.toml"
    file.write_text("nodse = 3\n")
    with pytest.raises(InvalidInput, match="nodse"):
        read_plan(file)
    file.write_text("nodes = [1")
    with pytest.raises(InvalidInput, match=re.escape(str(file))):
        read_plan(file)


def test_options_of_a_file_are_those_of_the_command_line():
    assert words({"pin": ["a", "b"], "max_wait": 2.5}) == ["--pin", "a", "--pin", "b", "--max-wait", "2.5"]
    with pytest.raises(InvalidInput, match="pin"):
        words({"pin": {"a": 1}})
    assert Plan().nodes == 3
