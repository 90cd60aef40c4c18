"""LoRA adapters where several nodes take from one line: each part of a request is computed with its adapter."""

import asyncio

import msgspec
import pytest

from cluster.agents import Nodes, job, nodes, slow_home, until
from names import MINILM, VIRTUAL
from shoal.catalog.store import Store
from shoal.protocol.envelope import Job
from shoal.testing.adapters import write_adapter
from shoal.testing.nats import nats_server

TEXTS = [f"{n} " + "word " * (n % 50) for n in range(600)]
LORAS = ["team/one", "team/two"]


@pytest.fixture(scope="module")
def server():
    with nats_server() as server:
        yield server


@pytest.fixture
def store(home, tmp_path):
    """A slow stand-in with two adapters: a request of many texts is worth sharing."""
    slow = slow_home(tmp_path / "home", seconds=0.01, seconds_per_token=0.00002, serial=True, batch_tokens=8192)
    found = Store(slow)
    for seed, name in enumerate(LORAS):
        folder = write_adapter(tmp_path / name, Store(home).resolve(MINILM).folder, seed=seed)
        found.add(folder, name=name, base=VIRTUAL)
    return found


def asking(*texts: str, model: str = VIRTUAL, beside: str = "") -> Job:
    """For an adapter as the model, or named beside the base."""
    plain = job(texts)
    body = {"items": list(texts), "params": {"options": {"lora_id": beside}}}
    envelope = msgspec.structs.replace(plain.envelope, model=model)
    return Job(envelope, msgspec.msgpack.encode(body))


async def rows(running: Nodes, *texts: str, **asked: str) -> list[object]:
    inbox = await running.gateway.publish(asking(*texts, **asked))
    try:
        async with asyncio.timeout(60):
            chunk = await inbox.next()
    finally:
        inbox.close()
    assert (chunk.status, chunk.last) == (200, True), chunk.data
    return msgspec.msgpack.decode(chunk.data)["items"]


async def test_parts_of_a_request_are_computed_with_its_adapter_whoever_takes_them(server, store):
    async with nodes(server, store.home, 1) as alone:
        known = {name: await rows(alone, *TEXTS, model=name) for name in (VIRTUAL, *LORAS)}
    assert known[VIRTUAL] != known[LORAS[0]] != known[LORAS[1]]
    async with nodes(server, store.home, 3) as running:
        await running.know_one_another()
        for _ in range(2):
            for name in (VIRTUAL, *LORAS):
                assert await rows(running, *TEXTS, model=name) == known[name]
            assert await rows(running, *TEXTS, beside=LORAS[0]) == known[LORAS[0]]
        assert all(node.line.replicas[0].shelf.held for node in running.nodes), "others computed parts of it"


async def test_a_node_that_dies_with_an_adapters_work_leaves_it_to_another(server, store):
    async with nodes(server, store.home, 2) as running:
        await running.know_one_another()
        known = await rows(running, *TEXTS, model=LORAS[0])
        asked = [asyncio.create_task(rows(running, *TEXTS, model=LORAS[0])) for _ in range(4)]
        await until(lambda: any(node.line.flying for node in running.nodes))
        lost = next(node for node in running.nodes if node.line.flying)
        await lost.kill()
        assert all(answer == known for answer in await asyncio.gather(*asked))
