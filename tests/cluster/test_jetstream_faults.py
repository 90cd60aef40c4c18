"""The shared queue when its server, a node or a gateway goes away: jobs are answered once, or refused in time."""

import asyncio
import contextlib
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import pytest

from cluster.jetstream_end import LIMITS, Answering
from shoal.protocol.envelope import Chunk, Envelope, Job
from shoal.protocol.errors import PayloadTooLarge, QueueFull, QueueUnavailable
from shoal.queue import Depth, Limits
from shoal.queue.jetstream import JetStreamQueue
from shoal.testing.nats import nats_server

END = Path(__file__).with_name("jetstream_end.py")


@pytest.fixture
def server():
    with nats_server() as server:
        yield server


@pytest.fixture
def pool():
    return secrets.token_hex(4)


@contextlib.asynccontextmanager
async def joined(server, pool, limits=LIMITS):
    queue = await JetStreamQueue.connect(server.url, pool, limits)
    try:
        yield queue
    finally:
        await queue.close()


@contextlib.asynccontextmanager
async def answering(server, pool, line="m", seconds=0.0, name="here"):
    async with joined(server, pool) as queue:
        end = Answering(queue, line, seconds, name)
        running = asyncio.ensure_future(end.run())
        try:
            yield end
        finally:
            running.cancel()
            await asyncio.wait([running])


async def until(what) -> None:
    async with asyncio.timeout(30):
        while not what():
            await asyncio.sleep(0.01)


class NodeProcess:
    """A puller in a process of its own; `first_job` is the first that it took."""

    def __init__(self, server, pool, seconds, name):
        command = [sys.executable, str(END), server.url, pool, "m", str(seconds), name]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)

    async def first_job(self) -> str:
        async with asyncio.timeout(30):
            return (await asyncio.to_thread(self.process.stdout.readline)).decode().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def job(name: str, line="m", body=b"", within_s=60.0) -> Job:
    now = time.time()
    return Job(
        Envelope(
            id=name, task="encode", model=line, line=line, dialect="native", route="encode",
            deadline=now + within_s, received=now, size_bytes=len(body),
        ),
        body or name.encode(),
    )  # fmt: skip


async def ask(queue, name: str, **more) -> bytes:
    """The answer, within the deadline of every test here."""
    inbox = await queue.publish(job(name, **more))
    try:
        async with asyncio.timeout(30):
            chunk = await inbox.next()
            data = chunk.data
            while not chunk.last:
                chunk = await inbox.next()
                data += chunk.data
            return data
    finally:
        inbox.close()


async def test_a_server_that_was_killed_and_comes_back_empty_loses_no_request(server, pool):
    async with joined(server, pool) as gateway, answering(server, pool, seconds=0.01):
        names = [f"{number}" for number in range(300)]
        asked = []
        for name in names:
            if name == "100":
                server.kill()
            if name == "150":
                server.start()
            asked.append(asyncio.ensure_future(ask(gateway, name)))
            await asyncio.sleep(0.003)
        assert await asyncio.gather(*asked) == [f"here:{name}".encode() for name in names]
        assert await gateway.depths() == {}


async def test_jobs_that_wait_in_a_server_that_is_killed_are_sent_again(server, pool):
    async with joined(server, pool) as gateway:
        asked = [asyncio.ensure_future(ask(gateway, f"{number}")) for number in range(50)]
        async with asyncio.timeout(30):
            while not await gateway.depths():
                await asyncio.sleep(0)
        server.kill()
        server.start()
        async with answering(server, pool):
            assert await asyncio.gather(*asked) == [f"here:{number}".encode() for number in range(50)]


async def test_a_server_that_stands_still_for_a_while_loses_no_request(server, pool):
    async with joined(server, pool) as gateway, answering(server, pool):
        assert await ask(gateway, "before") == b"here:before"
        server.freeze()
        asked = [asyncio.ensure_future(ask(gateway, f"{number}")) for number in range(20)]
        await asyncio.sleep(5)  # longer than it takes to find out
        server.thaw()
        assert await asyncio.gather(*asked) == [f"here:{number}".encode() for number in range(20)]


async def test_requests_are_refused_once_the_server_has_been_away_for_long(server, pool, monkeypatch):
    monkeypatch.setattr("shoal.queue.jetstream_asks.OUTAGE_S", 0.5)
    async with joined(server, pool) as gateway:
        waiting = asyncio.ensure_future(ask(gateway, "waiting"))
        await asyncio.sleep(0)
        server.kill()
        with pytest.raises(QueueUnavailable) as refused:
            await waiting
        assert refused.value.retryable
        with pytest.raises(QueueUnavailable):
            await gateway.publish(job("late"))
        server.start()
        async with answering(server, pool):
            while True:
                with contextlib.suppress(QueueUnavailable):
                    assert await ask(gateway, "again") == b"here:again"
                    break
                await asyncio.sleep(0.05)


async def test_what_a_killed_node_held_is_answered_by_another(server, pool):
    async with joined(server, pool) as gateway:
        with NodeProcess(server, pool, seconds=60, name="lost") as lost:
            asked = asyncio.ensure_future(ask(gateway, "a"))
            assert await lost.first_job() == "a"
            lost.process.send_signal(signal.SIGKILL)
            async with answering(server, pool):
                assert await asked == b"here:a"


async def test_a_node_that_stood_still_does_not_answer_a_second_time(server, pool):
    async with joined(server, pool) as gateway:
        with NodeProcess(server, pool, seconds=4, name="frozen") as frozen:
            asked = asyncio.ensure_future(ask(gateway, "a"))
            assert await frozen.first_job() == "a"
            frozen.process.send_signal(signal.SIGSTOP)
            async with answering(server, pool):
                assert await asked == b"here:a"
                frozen.process.send_signal(signal.SIGCONT)
                assert await ask(gateway, "b") in (b"here:b", b"frozen:b")
        assert await gateway.depths() == {}


async def test_what_a_lost_gateway_asked_for_is_not_computed(server, pool):
    async with answering(server, pool, seconds=60) as node, joined(server, pool) as gateway:
        await gateway.publish(job("a"))
        await until(lambda: node.taken == ["a"])
        gateway._link._wire.close("as if killed")
        gateway._link._task.cancel()
        await until(lambda: node.cancelled_jobs == ["a"])


async def test_a_stream_that_somebody_removed_is_made_again(server, pool):
    async with joined(server, pool) as gateway, answering(server, pool):
        assert await ask(gateway, "a") == b"here:a"
        await gateway._link.request(f"$JS.API.STREAM.DELETE.SHOAL_{pool}")
        assert await ask(gateway, "b") == b"here:b"


async def test_a_body_above_the_servers_limit_is_refused_naming_it(server, pool):
    async with joined(server, pool) as gateway:
        with pytest.raises(PayloadTooLarge, match="limit of 8388608 bytes; max_payload of the queue server"):
            await gateway.publish(job("a", body=b"x" * 8388608))


async def test_an_answer_above_the_servers_limit_arrives_whole(server, pool):
    async with joined(server, pool) as gateway, joined(server, pool) as node:
        asked = asyncio.ensure_future(ask(gateway, "a"))
        (delivery,) = await node.pull("m", max_jobs=1, max_bytes=1 << 20, wait_s=5.0)
        delivery.reply(Chunk("a", b"0123456789" * 2_000_000))
        delivery.ack()
        assert await asked == b"0123456789" * 2_000_000


async def test_a_node_that_leaves_gives_back_what_it_holds(server, pool):
    async with joined(server, pool) as gateway:
        inbox = await gateway.publish(job("a"))
        async with joined(server, pool) as leaving:
            assert await leaving.pull("m", max_jobs=1, max_bytes=1 << 20, wait_s=5.0)
        async with joined(server, pool) as other:
            (again,) = await other.pull("m", max_jobs=1, max_bytes=1 << 20, wait_s=1.0)
            assert again.job.envelope.id == "a"
        inbox.close()


async def test_other_nodes_hear_of_a_job_whose_node_was_lost_before_it_could_claim_it(server, pool):
    class Hearing:
        lines: ClassVar[list[str]] = []

        def work(self, line: str) -> None:
            self.lines.append(line)

        def cancelled(self, job_id: str) -> None: ...

    async with joined(server, pool) as gateway, joined(server, pool) as lost, joined(server, pool) as other:
        inbox = await gateway.publish(job("only", "m"))
        (held,) = await lost.pull("m", max_jobs=1, max_bytes=1000, wait_s=5.0)
        for task in lost._tasks:
            task.cancel()  # as if it had been killed: it neither claims nor extends
        other.listen(Hearing())
        await until(lambda: Hearing.lines)
        (again,) = await other.pull("m", max_jobs=1, max_bytes=1000, wait_s=5.0)
        again.reply(Chunk(again.job.envelope.id, b"done"))
        again.ack()
        assert (await inbox.next()).data == b"done"
        assert held.job.envelope.id == again.job.envelope.id == "only"


async def test_gateways_agree_on_what_a_pool_may_hold_also_on_a_server_that_lost_it(server, pool):
    narrow, wide = Limits(jobs_per_line=3, bytes_per_line=1 << 20), Limits(jobs_per_line=9, bytes_per_line=1 << 22)
    async with joined(server, pool, narrow) as first:
        other = await JetStreamQueue.connect(server.url, pool, wide, may_change=False)
        try:
            await filled(other, 3, "over the limit of 3 jobs")
            server.kill()
            await until(lambda: not (first.is_up or other.is_up))
            server.start()
            await until(lambda: first.is_up and other.is_up)
            await filled(other, 3, "over the limit of 3 jobs")
            async with joined(server, pool, wide):
                await first.depths()
                await filled(first, 9, "over the limit of 9 jobs")
        finally:
            await other.close()


async def filled(queue, jobs: int, said: str) -> None:
    """A line of its own takes so many jobs, and the next one is refused with these words."""
    line = secrets.token_hex(4)
    inboxes = [await queue.publish(job(f"{line}-{number}", line)) for number in range(jobs)]
    async with asyncio.timeout(30):
        while (await queue.depths()).get(line, Depth(0, 0, 0.0)).jobs < jobs:
            await asyncio.sleep(0.01)
    inboxes.append(await queue.publish(job(f"{line}-too-many", line)))
    async with asyncio.timeout(30):
        with pytest.raises(QueueFull, match=said):
            await inboxes[-1].next()
    for inbox in inboxes:
        inbox.close()
