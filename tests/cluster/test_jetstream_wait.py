"""A gateway refuses what would wait too long in a shared line, by the pace of the answers it gets itself."""

import time

import pytest

from shoal.protocol.envelope import Chunk, Envelope, Job
from shoal.protocol.errors import QueueFull
from shoal.queue import Limits
from shoal.queue.jetstream import JetStreamQueue
from shoal.testing.nats import nats_server


def job(name: str, now: float) -> Job:
    return Job(
        Envelope(
            id=name, task="encode", model="m", line="m", dialect="native", route="encode", deadline=now + 60,
            received=now, size_bytes=4,
        ),
        b"body",
    )  # fmt: skip


async def test_a_job_that_would_wait_too_long_is_refused_once_the_lines_pace_is_known():
    now = time.time()
    with nats_server() as server:
        queue = await JetStreamQueue.connect(server.url, limits=Limits(max_wait_s=1.0), clock=lambda: now)
        inboxes = {}

        async def answer(count: int) -> None:
            """A tenth of a second, and so many answers."""
            nonlocal now
            now += 0.1
            while count:
                for lent in await queue.pull("m", max_jobs=count, max_bytes=1 << 20, wait_s=5.0):
                    lent.reply(Chunk(lent.job.envelope.id, b"answer"))
                    lent.ack()
                    inbox = inboxes.pop(lent.job.envelope.id)
                    await inbox.next()
                    inbox.close()
                    count -= 1

        for number in range(500):  # about fifty are waiting, a hundred are answered a second
            inboxes[f"{number}"] = await queue.publish(job(f"{number}", now))
            if number >= 50 and number % 10 == 0:
                await answer(10)

        async def flood() -> None:
            for number in range(500, 700):
                inboxes[f"{number}"] = await queue.publish(job(f"{number}", now))

        with pytest.raises(QueueFull, match="--max-wait"):
            await flood()
        assert 90 < len(inboxes) < 130
        assert queue.refusal("m", "interactive", now + 60) is not None
        await answer(60)
        assert queue.refusal("m", "interactive", now + 60) is None
        assert queue.refusal("another", "interactive", now + 60) is None
        await queue.close()
