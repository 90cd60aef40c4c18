"""Which node loads what, and what goes back: real nodes, a real queue server, virtual devices."""

import asyncio
import time

import httpx
import pytest

from cluster.agents import nodes, slow_home, until
from names import MINILM, VIRTUAL
from shoal.testing.nats import nats_server
from shoal.testing.server import serving


@pytest.fixture(scope="module")
def server():
    with nats_server() as server:
        yield server


async def test_a_burst_to_a_cold_model_makes_one_node_load_it(server, tmp_path):
    home = slow_home(tmp_path / "home", serial=True)
    async with nodes(server, home, 3, pinned=()) as running:
        await until(lambda: all(node.agent.scheduler.peers.count(time.time()) == 2 for node in running.nodes))
        answers = await asyncio.gather(*(running.ask(f"text {n}") for n in range(30)))
        assert {status for status, _ in answers} == {200}
        assert sum(node.holds() for node in running.nodes) == 1


async def test_a_model_whose_only_holder_is_lost_is_loaded_by_another(server, tmp_path):
    home = slow_home(tmp_path / "home", serial=True)
    async with nodes(server, home, 3, pinned=()) as running:
        await until(lambda: all(node.agent.scheduler.peers.count(time.time()) == 2 for node in running.nodes))
        assert (await running.ask("first"))[0] == 200
        holder = next(node for node in running.nodes if node.holds())
        await holder.kill()
        assert (await running.ask("second"))[0] == 200
        assert sum(node.holds() for node in running.nodes if node is not holder) == 1


async def test_what_waits_behind_a_stalled_window_is_computed_by_a_node_that_has_nothing_to_do(server, tmp_path):
    home = slow_home(tmp_path / "home", seconds=0.05, serial=True)
    async with nodes(server, home, 2) as running:
        await running.know_one_another()
        for n in range(20):
            await running.ask(f"text {n}")
        stalled = asyncio.create_task(running.ask("shoal:virtual:slow=8"))
        for_a_while = asyncio.create_task(running.ask("shoal:virtual:slow=1"))
        await until(lambda: all(node.line.flying for node in running.nodes))
        others = await asyncio.gather(*(running.ask(f"again {n}") for n in range(10)))
        assert {status for status, _ in others} == {200}
        assert not stalled.done()
        assert [(await each)[0] for each in (for_a_while, stalled)] == [200, 200]


@pytest.mark.models
def test_several_replicas_on_one_processor_answer_as_one_does(home):
    texts = [f"a sentence about subject {n}" for n in range(60)]
    body = {"model": MINILM, "input": texts}
    found = []
    for given in ("cpu", "cpu:2"):
        with serving(home, "--pin", MINILM, "--devices", given) as running:
            answer = httpx.post(f"{running.url}/v1/embeddings", json=body, timeout=60).json()
            found.append([row["embedding"] for row in answer["data"]])
    for one, other in zip(*found, strict=True):
        assert sum(a * b for a, b in zip(one, other, strict=True)) > 0.9995


def test_several_virtual_devices_of_one_server_share_its_line(virtual_home):
    body = {"items": [{"text": f"text {n} shoal:virtual:slow=0.01"} for n in range(64)]}
    with serving(virtual_home, "--pin", VIRTUAL, "--devices", "virtual:3") as running:
        for _ in range(3):
            answer = httpx.post(
                f"{running.url}/v1/encode/{VIRTUAL}", json=body, headers={"accept": "application/json"}, timeout=60
            )
            assert answer.status_code == 200
        node = httpx.get(f"{running.url}/status").json()["nodes"][0]
        assert node["models"][VIRTUAL]["device"] == "virtual:0,virtual:1,virtual:2"
