"""A cluster whose parts are killed, frozen and begun again under load: each request is answered once, with what is
its own, or refused in time with an error after which it may be asked again.
"""

import asyncio
import os
import signal

import pytest

from cluster.asking import Asking, client_of, encode, until
from names import MINILM, VIRTUAL
from shoal.testing.cluster import cluster

pytestmark = pytest.mark.slow
PINNED = ["--pin", VIRTUAL]


async def test_a_node_killed_ten_times_under_load_costs_no_answer(virtual_home):
    with cluster(virtual_home, node_options=PINNED) as running:
        async with Asking(running.url) as asking:
            for turn in range(10):
                node = running.nodes[turn % 2]
                await asking.more(100)
                node.kill()
                await asking.more(50)
                node.start()
                await ready(running, node)
            await asking.more(100)
        asking.report("a node killed ten times")
        assert asking.wrong == []
        assert not asking.broken
        assert not asking.refused, "another node had the time to do it"


async def test_a_runtime_killed_ten_times_under_load_costs_no_answer(virtual_home):
    with cluster(virtual_home, node_options=PINNED) as running:
        async with Asking(running.url) as asking:
            for turn in range(10):
                node = running.nodes[turn % 2]
                await asking.more(100)
                await kill_runtimes(node)
            await asking.more(100)
        asking.report("a runtime killed ten times")
        assert asking.wrong == []
        assert not asking.broken
        assert not asking.refused


@pytest.mark.models
async def test_with_a_real_model_nodes_and_runtimes_killed_in_turn_cost_no_answer(home):
    with cluster(home, node_options=["--pin", MINILM]) as running:
        async with Asking(running.url, model=MINILM) as asking:
            for turn in range(6):
                node = running.nodes[turn % 2]
                await asking.more(60)
                if turn % 3:
                    node.kill()
                    await asking.more(30)
                    node.start()
                else:
                    await kill_runtimes(node)
                await ready(running, node)
            await asking.more(60)
        asking.report("nodes and runtimes of a real model killed in turn")
        assert asking.wrong == []
        assert not asking.broken
        assert not asking.refused


async def test_a_node_frozen_for_ten_seconds_costs_no_answer_and_its_late_answers_are_nobody_elses(virtual_home):
    with cluster(virtual_home, node_options=PINNED) as running:
        async with Asking(running.url) as asking:
            await asking.more(200)
            running.nodes[0].freeze()
            await until(lambda: "node-1" not in running.gateways[0].nodes())  # after five seconds of silence
            await asyncio.sleep(5)
            running.nodes[0].thaw()
            await ready(running, running.nodes[0])
            await asking.more(300)
        asking.report("a node frozen for ten seconds")
        assert asking.wrong == []
        assert not asking.broken
        assert not asking.refused


async def test_the_queue_server_killed_and_begun_again_under_load_is_survived_by_everyone(virtual_home):
    with cluster(virtual_home, gateways=2, node_options=PINNED) as running:
        async with Asking([gateway.url for gateway in running.gateways]) as asking:
            for pause_s in (0.0, 1.0, 3.0):
                await asking.more(200)
                running.nats.kill()
                await asyncio.sleep(pause_s)
                running.nats.start()
                await asking.more(200)
            await until(lambda: all(set(g.nodes()) == {"node-1", "node-2"} for g in running.gateways))
        asking.report("the queue server killed three times")
        assert asking.wrong == []
        assert not asking.broken
        assert all(part.process.poll() is None for part in (*running.nodes, *running.gateways))


async def test_a_killed_gateways_clients_see_a_broken_connection_and_the_others_go_on(virtual_home):
    with cluster(virtual_home, gateways=2, node_options=PINNED) as running:
        first, second = running.gateways
        async with Asking(second.url, askers=8) as asking, client_of(first.url) as lost:
            await asking.more(50)
            doomed = [asyncio.create_task(encode(lost, f"shoal:virtual:slow=1 {n}")) for n in range(40)]
            await asking.more(10)
            first.kill()
            ends = await asyncio.gather(*doomed, return_exceptions=True)
            assert all(isinstance(end, Exception) or end.status_code == 200 for end in ends)
            assert any(isinstance(end, Exception) for end in ends)
            await asking.more(100)
            first.start()
            await until(first.is_ready)
            async with client_of(first.url) as again:
                assert (await encode(again, "back")).status_code == 200
        asking.report("a gateway killed: clients of the other")
        assert asking.wrong == []
        assert not asking.broken
        assert not asking.refused


async def ready(running, part) -> None:
    """Until the node has told, since it was last begun, that it lacks nothing."""

    def is_ready() -> bool:
        node = running.gateways[0].nodes().get(part.name)
        return node is not None and not node.get("lacking") and node["began"] >= part.began

    await until(is_ready)


async def kill_runtimes(part) -> None:
    """Until others have taken their place."""
    killed = set(part.runtime_pids())
    assert killed
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    await until(lambda: part.runtime_pids() and not killed & set(part.runtime_pids()))
