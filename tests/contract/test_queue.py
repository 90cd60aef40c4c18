"""What every queue owes: one suite, run on each implementation, its faults injected by the fixture."""

import asyncio
import time

import pytest

from shoal.protocol.envelope import Chunk, Envelope, Job, Priority
from shoal.protocol.errors import QueueFull, ShuttingDown
from shoal.queue import Limits
from shoal.queue.inprocess import InProcessQueue


class World:
    """A queue and the clock it reads."""

    def __init__(self, limits: Limits) -> None:
        self.now = time.time()
        self.queue = InProcessQueue(limits, clock=lambda: self.now)
        self.heard: list[tuple[str, str]] = []
        self.queue.listen(self)

    def work(self, line: str) -> None:
        self.heard.append(("work", line))

    def cancelled(self, job_id: str) -> None:
        self.heard.append(("cancelled", job_id))

    def let_leases_run_out(self) -> None:
        self.now += 60
        self.queue.redeliver_expired()

    async def pull(self, line="m", jobs=100, size=1 << 20, wait=0.0):
        return await self.queue.pull(line, max_jobs=jobs, max_bytes=size, wait_s=wait)


@pytest.fixture
async def world():
    world = World(Limits(jobs_per_line=4, bytes_per_line=1000))
    yield world
    await world.queue.close()


def job(name: str, line="m", priority: Priority = "interactive", body=b"body", received=0.0) -> Job:
    envelope = Envelope(
        id=name, task="encode", model=line, line=line, dialect="native", route="encode",
        deadline=time.time() + 60, received=received or time.time(), size_bytes=len(body), priority=priority,
    )  # fmt: skip
    return Job(envelope, body)


def ids(deliveries) -> list[str]:
    return [delivery.job.envelope.id for delivery in deliveries]


async def test_jobs_come_out_in_order_of_arrival_and_the_line_is_announced(world):
    for name in "abc":
        await world.queue.publish(job(name))
    assert ids(await world.pull()) == ["a", "b", "c"]
    assert world.heard[0] == ("work", "m")


async def test_interactive_jobs_go_before_batch_jobs(world):
    await world.queue.publish(job("slow", priority="batch"))
    await world.queue.publish(job("quick"))
    assert ids(await world.pull()) == ["quick", "slow"]


async def test_a_batch_job_that_has_waited_long_goes_first(world):
    await world.queue.publish(job("old", priority="batch", received=world.now - 11))
    await world.queue.publish(job("quick"))
    assert ids(await world.pull()) == ["old", "quick"]


async def test_a_pull_takes_at_most_what_it_asked_for(world):
    for name in "abc":
        await world.queue.publish(job(name, body=b"x" * 100))
    assert ids(await world.pull(jobs=1)) == ["a"]
    assert ids(await world.pull(size=150)) == ["b"]


async def test_a_job_larger_than_the_pull_is_still_delivered_alone(world):
    await world.queue.publish(job("big", body=b"x" * 500))
    assert ids(await world.pull(size=10)) == ["big"]


async def test_a_parked_pull_gets_the_next_job_and_an_idle_one_ends_empty(world):
    parked = asyncio.ensure_future(world.pull(wait=5.0))
    await asyncio.sleep(0)
    await world.queue.publish(job("a"))
    assert ids(await parked) == ["a"]
    assert await world.pull(wait=0.001) == []


async def test_depths_count_waiting_jobs_only_and_forget_empty_lines(world):
    await world.queue.publish(job("a"))
    await world.queue.publish(job("b", line="other"))
    depths = await world.queue.depths()
    assert {line: depth.jobs for line, depth in depths.items()} == {"m": 1, "other": 1}
    assert depths["m"].size_bytes == 4
    await world.pull()
    assert set(await world.queue.depths()) == {"other"}


async def test_a_full_line_refuses_naming_limit_size_and_setting_and_other_lines_go_on(world):
    for name in "abcd":
        await world.queue.publish(job(name))
    with pytest.raises(QueueFull, match=r"5 jobs.*limit of 4 jobs.*--queue-jobs"):
        await world.queue.publish(job("e"))
    await world.queue.publish(job("e", line="other"))


async def test_a_line_full_by_bytes_refuses(world):
    await world.queue.publish(job("a", body=b"x" * 900))
    with pytest.raises(QueueFull, match="--queue-bytes"):
        await world.queue.publish(job("b", body=b"x" * 200))


async def test_the_reply_reaches_the_asker_and_a_second_one_is_dropped(world):
    inbox = await world.queue.publish(job("a"))
    (delivery,) = await world.pull()
    delivery.reply(Chunk("a", b"first"))
    delivery.reply(Chunk("a", b"second"))
    delivery.ack()
    assert (await inbox.next()).data == b"first"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(inbox.next(), 0.001)


async def test_stream_chunks_arrive_in_order_and_those_of_another_delivery_are_not_spliced_in(world):
    inbox = await world.queue.publish(job("a"))
    (first,) = await world.pull()
    first.reply(Chunk("a", b"1", seq=0, last=False))
    world.let_leases_run_out()
    (second,) = await world.pull()
    second.reply(Chunk("a", b"other 1", seq=0, last=False))
    second.reply(Chunk("a", b"other 2", seq=1, last=True))
    first.reply(Chunk("a", b"2", seq=1, last=True))
    assert [(await inbox.next()).data for _ in range(2)] == [b"1", b"2"]


async def test_a_job_whose_lease_ran_out_is_delivered_again_and_answered_once(world):
    inbox = await world.queue.publish(job("a"))
    (lost,) = await world.pull()
    world.let_leases_run_out()
    (again,) = await world.pull()
    lost.ack()  # late: it no longer holds the job
    again.reply(Chunk("a", b"answer"))
    again.ack()
    lost.reply(Chunk("a", b"late"))
    assert (await inbox.next()).data == b"answer"
    world.let_leases_run_out()
    assert await world.pull() == []


async def test_an_extended_lease_is_kept(world):
    await world.queue.publish(job("a"))
    (delivery,) = await world.pull()
    world.now += 3
    delivery.extend()
    world.now += 3
    world.queue.redeliver_expired()
    assert await world.pull() == []


async def test_a_given_back_job_goes_to_the_head_of_its_line(world):
    for name in "ab":
        await world.queue.publish(job(name))
    (first,) = await world.pull(jobs=1)
    first.give_back()
    first.give_back()  # twice is once
    assert ids(await world.pull()) == ["a", "b"]


async def test_closing_the_inbox_of_a_waiting_job_takes_it_out_of_the_line(world):
    inbox = await world.queue.publish(job("a"))
    inbox.close()
    assert await world.pull() == []
    assert await world.queue.depths() == {}


async def test_closing_the_inbox_of_a_lent_job_tells_its_holder_and_it_never_returns(world):
    inbox = await world.queue.publish(job("a"))
    (delivery,) = await world.pull()
    inbox.close()
    assert ("cancelled", "a") in world.heard
    delivery.give_back()
    assert await world.pull() == []


async def test_closing_after_the_answer_cancels_nothing(world):
    inbox = await world.queue.publish(job("a"))
    (delivery,) = await world.pull()
    delivery.reply(Chunk("a", b"answer"))
    delivery.ack()
    await inbox.next()
    inbox.close()
    assert ("cancelled", "a") not in world.heard


async def test_a_closed_queue_refuses_and_wakes_its_pullers(world):
    parked = asyncio.ensure_future(world.pull(wait=60))
    await asyncio.sleep(0)
    await world.queue.close()
    assert await parked == []
    with pytest.raises(ShuttingDown):
        await world.queue.publish(job("a"))
