"""Large requests are shared by nodes that have nothing to do: real nodes, a real queue server."""

import asyncio
import random
import time

import msgspec
import pytest

from cluster.agents import Nodes, nodes, slow_home, until
from shoal.testing.nats import nats_server

rng = random.Random(3)
TEXTS = [f"{n} " + "word " * min(300, int(rng.lognormvariate(3.2, 0.9)) + 1) for n in range(1000)]


@pytest.fixture(scope="module")
def server():
    with nats_server() as server:
        yield server


@pytest.fixture
def home(tmp_path):
    return slow_home(tmp_path / "home", seconds=0.01, seconds_per_token=0.00002, serial=True, batch_tokens=8192)


def rows(body: bytes) -> list[object]:
    return msgspec.msgpack.decode(body)["items"]


async def timed(running: Nodes) -> tuple[float, bytes]:
    began = time.monotonic()
    status, body = await running.ask(*TEXTS)
    assert status == 200
    return time.monotonic() - began, body


async def test_four_idle_nodes_share_a_request_of_a_thousand_texts_and_the_answer_is_in_order(server, home):
    async with nodes(server, home, 1) as alone:
        for _ in range(3):
            took_one, expected = await timed(alone)
    async with nodes(server, home, 4) as running:
        await running.know_one_another()
        for _ in range(4):
            took_four, body = await timed(running)
            print(f"one node {took_one:.2f} s, four {took_four:.2f} s")
        assert rows(body) == rows(expected)
        assert all(node.line.last_used for node in running.nodes)


async def test_a_part_whose_node_is_lost_is_computed_all_the_same(server, home):
    async with nodes(server, home, 3) as running:
        await running.know_one_another()
        expected = rows((await running.ask(*TEXTS))[1])
        asked = asyncio.create_task(running.ask(*TEXTS))
        await until(lambda: any(parts(node) for node in running.nodes))
        lost = next(node for node in running.nodes if parts(node))
        await lost.kill()
        status, body = await asked
        assert (status, rows(body)) == (200, expected)


async def test_a_splitter_that_is_lost_loses_no_request(server, home):
    async with nodes(server, home, 3) as running:
        await running.know_one_another()
        expected = rows((await running.ask(*TEXTS))[1])
        asked = asyncio.create_task(running.ask(*TEXTS))
        await until(lambda: any(parts(node) for node in running.nodes))
        lost = next(node for node in running.nodes if wholes(node))
        await lost.kill()
        status, body = await asked
        assert (status, rows(body)) == (200, expected)


async def test_a_cancelled_request_takes_its_parts_along(server, home):
    async with nodes(server, home, 3) as running:
        await running.know_one_another()
        asked = asyncio.create_task(running.ask(*TEXTS))
        await until(lambda: any(parts(node) for node in running.nodes))
        asked.cancel()
        await until(lambda: not any(node.agent.scheduler.tickets for node in running.nodes))
        await until(lambda: all(not node.line.flying for node in running.nodes))
        assert await running.gateway.depths() == {}


def parts(node):
    return [t for t in node.agent.scheduler.tickets.values() if t.envelope.task == "part"]


def wholes(node):
    return [t for t in node.agent.scheduler.tickets.values() if t.envelope.task != "part"]
