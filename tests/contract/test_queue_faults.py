"""Everything that may go wrong in a queue at once: each job is still answered once, with its own answer."""

import asyncio
import contextlib
import time

import pytest

from shoal.protocol.envelope import Chunk, Envelope, Job
from shoal.protocol.errors import QueueFull
from shoal.queue import Limits
from shoal.queue.inprocess import InProcessQueue
from shoal.testing.faulty import Faults, FaultyQueue

EVERYTHING = Faults(
    reply_twice=0.3, swap_chunks=0.5, late_ack=0.3, lost_extend=0.3, forget_give_back=0.3, refuse_late=0.1
)
PIECES = 5


def job(name: str) -> Job:
    now = time.time()
    envelope = Envelope(
        id=name,
        task="encode",
        model="m",
        line="m",
        dialect="native",
        route="encode",
        deadline=now + 60,
        received=now,
    )
    return Job(envelope, name.encode())


async def ask(queue, name: str) -> bytes:
    inbox = await queue.publish(job(name))
    try:
        data, chunk = b"", None
        while chunk is None or not chunk.last:
            chunk = await inbox.next()
            data += chunk.data
        return data
    except QueueFull:
        return b"full"
    finally:
        inbox.close()


async def answer(queue, turn: int) -> None:
    """A node that gives every third job back, and answers the others in pieces."""
    while True:
        for delivery in await queue.pull("m", max_jobs=3, max_bytes=1000, wait_s=5.0):
            turn += 1
            delivery.extend()
            if turn % 3 == 0:
                delivery.give_back()
                continue
            await asyncio.sleep(0)
            name = delivery.job.body
            for seq in range(PIECES):
                delivery.reply(Chunk(name.decode(), b"%s.%d " % (name, seq), seq, last=seq == PIECES - 1))
            delivery.ack()


@pytest.mark.parametrize("seed", range(5))
async def test_each_job_is_answered_once_whatever_the_queue_does(seed):
    now = time.time()
    inner = InProcessQueue(Limits(), clock=lambda: now)
    queue = FaultyQueue(inner, EVERYTHING, seed)
    nodes = [asyncio.ensure_future(answer(queue, turn)) for turn in range(3)]
    asked = {f"{number}": asyncio.ensure_future(ask(queue, f"{number}")) for number in range(200)}
    async with asyncio.timeout(30):
        while not all(task.done() for task in asked.values()):
            await asyncio.sleep(0)
            now += 1  # every few turns, whatever is lent comes back
            inner.redeliver_expired()
            queue.release()
    for node in nodes:
        node.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*nodes)
    await queue.close()
    answers = {name: task.result() for name, task in asked.items()}
    assert {n for n, a in answers.items() if a not in (_whole(n), b"full")} == set()
    assert 0 < sum(a == b"full" for a in answers.values()) < 100


def _whole(name: str) -> bytes:
    return b"".join(b"%s.%d " % (name.encode(), seq) for seq in range(PIECES))
