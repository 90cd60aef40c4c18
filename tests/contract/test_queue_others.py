"""Whether other nodes take jobs of a line of the shared queue: parked on it, or just now."""

import asyncio
import secrets
import time

import pytest

from contract.test_queue import job, nats
from shoal.queue import Limits
from shoal.queue.jetstream import JetStreamQueue

__all__ = ["nats"]
LONG_S = 60.0


class Hearing:
    def work(self, line):
        pass

    def cancelled(self, job_id):
        pass


@pytest.fixture
async def ends(nats):
    """A gateway's end and those of two nodes."""
    pool = secrets.token_hex(4)
    found = [await JetStreamQueue.connect(nats.url, pool, Limits(bytes_per_line=100_000)) for _ in range(3)]
    for end in found[1:]:
        end.listen(Hearing())
    await settled(found)
    yield found
    for end in found:
        await end.close()


async def settled(ends):
    for end in (*ends, *ends):
        await end.depths()


async def take(node, line="m"):
    (lent,) = await node.pull(line, max_jobs=1, max_bytes=1 << 20, wait_s=LONG_S)
    lent.ack()


async def until(is_so):
    end = time.monotonic() + LONG_S
    while not await is_so():
        assert time.monotonic() < end


async def test_a_line_that_nobody_pulled_from_is_left_to_us(ends):
    _, node, _ = ends
    assert not await node.others_pull("m", LONG_S)


@pytest.mark.parametrize("body", [b"x" * 50, b"x" * 2000])
@pytest.mark.parametrize("is_apart", [False, True])
async def test_what_another_took_just_now_counts_and_what_we_took_does_not(ends, is_apart, body):
    gateway, node, other = ends
    if is_apart:
        gateway.keep_apart("m")
    await gateway.publish(job("1", body=body))
    await settled(ends)
    await take(node)
    assert not await node.others_pull("m", LONG_S)
    await gateway.publish(job("2", body=body))
    await settled(ends)
    await take(other)
    await until(lambda: node.others_pull("m", LONG_S))

    async def is_past() -> bool:
        return not await node.others_pull("m", 0.01)

    await until(is_past)


@pytest.mark.parametrize("is_apart", [False, True])
async def test_one_that_is_parked_counts(ends, is_apart):
    gateway, node, other = ends
    if is_apart:
        gateway.keep_apart("m")
        await gateway.publish(job("1", body=b"x" * 50))
        await settled(ends)
        await take(node)
    parked = asyncio.ensure_future(take(other))
    await until(lambda: node.others_pull("m", 0.0))
    assert await node.others_waiting("m") == 1
    await gateway.publish(job("2"))
    await parked
