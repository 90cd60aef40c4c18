"""Pools that share one queue server's memory: who holds it, who gives it up, what is said where there is none."""

import asyncio
import contextlib
import time
from pathlib import Path

import msgspec
import pytest

from shoal.protocol.envelope import Envelope, Job
from shoal.protocol.errors import ResourceExhausted
from shoal.queue import Limits
from shoal.queue.jetstream import JetStreamQueue
from shoal.queue.server import ServerSettings
from shoal.testing.nats import nats_server

ROOM = 1 << 20


@pytest.fixture
def server():
    """With room for one pool and a half."""
    with nats_server(ServerSettings(folder=Path(), memory_bytes=ROOM * 3 // 2)) as server:
        yield server


def job(name: str) -> Job:
    now = time.time()
    return Job(
        Envelope(
            id=name, task="encode", model="m", line="m", dialect="native", route="encode",
            deadline=now + 60, received=now, size_bytes=4,
        ),
        b"body",
    )  # fmt: skip


class Nobody:
    def noted(self, key, note): ...

    def told(self, status): ...


@contextlib.asynccontextmanager
async def joined(server, pool):
    queue = await JetStreamQueue.connect(server.url, pool, Limits(bytes_per_line=ROOM))
    try:
        await queue.board.watch(Nobody())
        yield queue
    finally:
        await queue.close()


async def test_a_pool_that_nobody_is_in_any_more_makes_room_for_another(server):
    async with joined(server, "misspelt"):
        pass
    async with joined(server, "meant") as queue:
        assert await queue.depths() == {}
    async with joined(server, "misspelt") as queue:
        assert await queue.depths() == {}, "and its turn may come again"


async def test_a_pool_that_somebody_is_in_is_named_to_whom_it_leaves_no_room(server):
    async with joined(server, "first one") as first:
        with pytest.raises(ResourceExhausted, match=r"max_memory_store .*; other pools hold first one 1\.0 MB"):
            await JetStreamQueue.connect(server.url, "second", Limits(bytes_per_line=ROOM))
        assert await first.depths() == {}


async def test_a_pool_with_jobs_in_it_is_no_pool_to_take_room_from(server):
    async with joined(server, "first") as queue:
        await queue.publish(job("left"))
        async with asyncio.timeout(60):
            while not await queue.depths():
                await asyncio.sleep(0.01)
    with pytest.raises(ResourceExhausted, match="first"):
        await JetStreamQueue.connect(server.url, "second", Limits(bytes_per_line=ROOM))


async def test_who_finds_no_room_at_a_server_that_came_back_smaller_asks_until_there_is(server):
    async with joined(server, "pool") as queue:
        kept = server.settings
        server.kill()
        server.settings = msgspec.structs.replace(kept, memory_bytes=ROOM // 2)
        server.start()
        await asyncio.sleep(3)  # it is asked, and refuses
        server.kill()
        server.settings = kept
        server.start()
        async with asyncio.timeout(60):
            while not queue.is_up:
                await asyncio.sleep(0.05)
            inbox = await queue.publish(job("again"))
            (held,) = await queue.pull("m", max_jobs=1, max_bytes=1000, wait_s=30.0)
            assert held.job.envelope.id == "again"
            held.ack()
        inbox.close()
