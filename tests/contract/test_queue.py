"""What every queue owes: one suite, run on each implementation, its faults injected by the fixture."""

import asyncio
import time

import pytest

from contract.queue_worlds import FaultyWorld, InProcessWorld, JetStreamWorld
from shoal.protocol.envelope import Chunk, Envelope, Job, Priority
from shoal.protocol.errors import QueueFull, ShuttingDown
from shoal.testing.faulty import Faults
from shoal.testing.nats import nats_server

ALWAYS = Faults(reply_twice=1.0, swap_chunks=1.0, refuse_all_late=True)


@pytest.fixture(scope="session")
def nats():
    with nats_server() as server:
        yield server


@pytest.fixture(params=["in process", "in process, with faults", "jetstream"])
async def world(request):
    match request.param:
        case "in process":
            world = InProcessWorld()
        case "in process, with faults":
            world = FaultyWorld(ALWAYS)
        case _:
            world = await JetStreamWorld.open(request.getfixturevalue("nats").url)
    yield world
    await world.close()


def job(name: str, line="m", priority: Priority = "interactive", body=b"body", received=0.0) -> Job:
    envelope = Envelope(
        id=name, task="encode", model=line, line=line, dialect="native", route="encode",
        deadline=time.time() + 60, received=received or time.time(), size_bytes=len(body), priority=priority,
    )  # fmt: skip
    return Job(envelope, body)


async def refusal(world, job) -> str:
    with pytest.raises(QueueFull) as refused:
        await (await world.asker.publish(job)).next()
    return refused.value.message


def ids(deliveries) -> list[str]:
    return [delivery.job.envelope.id for delivery in deliveries]


async def test_jobs_come_out_in_order_of_arrival_and_the_line_is_announced(world):
    for name in "abc":
        await world.asker.publish(job(name))
    await world.hears("work", "m")
    assert ids(await world.take(3)) == ["a", "b", "c"]


async def test_names_of_lines_may_hold_anything(world):
    for name in ("org/model@v1.0:int8", "a b.c>*", "模型", "x" * 300):
        await world.asker.publish(job(name, line=name))
        await world.settle()
        assert set(await world.puller.depths()) == {name}
        (delivery,) = await world.take(1, line=name)
        assert (delivery.job.envelope.id, delivery.job.envelope.line) == (name, name)
        delivery.ack()
        await world.hears("work", name)
        await world.settle()


async def test_interactive_jobs_go_before_batch_jobs(world):
    await world.asker.publish(job("slow", priority="batch"))
    await world.asker.publish(job("quick"))
    await world.settle()
    assert ids(await world.take(2)) == ["quick", "slow"]


async def test_a_batch_job_that_has_waited_long_goes_first(world):
    await world.asker.publish(job("old", priority="batch", received=world.now))
    await world.settle()
    world.now += 11
    await world.asker.publish(job("quick", received=world.now))
    await world.settle()
    assert ids(await world.take(2)) == ["old", "quick"]


async def test_a_pull_takes_at_most_what_it_asked_for(world):
    for name in "abc":
        await world.asker.publish(job(name, body=b"x" * 100))
    await world.settle()
    assert ids(await world.pull(jobs=1)) == ["a"]
    assert ids(await world.pull(size=150)) == ["b"]
    assert ids(await world.take(1)) == ["c"]


async def test_a_job_larger_than_the_pull_is_still_delivered_alone(world):
    await world.asker.publish(job("big", body=b"x" * 2500))
    await world.settle()
    assert ids(await world.pull(size=10)) == ["big"]


async def test_a_parked_pull_gets_the_next_job_and_an_idle_one_ends_empty(world):
    parked = asyncio.ensure_future(world.pull(wait=5.0))
    await world.settle()
    await world.asker.publish(job("a"))
    assert ids(await parked) == ["a"]
    assert await world.pull(wait=0.001) == []


async def test_a_parked_pull_gets_a_batch_job_too(world):
    parked = asyncio.ensure_future(world.pull(wait=5.0))
    await world.settle()
    await world.asker.publish(job("a", priority="batch"))
    assert ids(await parked) == ["a"]


async def test_a_pull_that_was_cancelled_takes_nothing_with_it(world):
    parked = asyncio.ensure_future(world.pull(wait=5.0))
    await world.settle()
    parked.cancel()
    await asyncio.wait([parked])
    await world.asker.publish(job("a"))
    assert ids(await world.take(1)) == ["a"]


async def test_depths_count_waiting_jobs_only_and_forget_empty_lines(world):
    await world.asker.publish(job("a"))
    await world.asker.publish(job("b", line="other"))
    await world.settle()
    depths = await world.asker.depths()
    assert {line: depth.jobs for line, depth in depths.items()} == {"m": 1, "other": 1}
    assert depths["m"].size_bytes >= 4
    await world.take(1)
    assert set(await world.puller.depths()) == set(await world.asker.depths()) == {"other"}


async def test_a_full_line_refuses_naming_limit_size_and_setting_and_other_lines_go_on(world):
    for name in "abcd":
        await world.asker.publish(job(name))
    assert await refusal(world, job("e")) == (
        "the line of m is 5 jobs, over the limit of 4 jobs; --queue-jobs changes it"
    )
    await world.asker.publish(job("e", line="other"))
    assert ids(await world.take(1, line="other")) == ["e"]


async def test_a_line_full_by_bytes_refuses_naming_limit_and_setting(world):
    await world.asker.publish(job("a", body=b"x" * 3000))
    message = await refusal(world, job("b", body=b"x" * 1200))
    assert "4000 bytes" in message
    assert "--queue-bytes changes it" in message


async def test_the_reply_reaches_the_asker_and_a_second_one_is_dropped(world):
    inbox = await world.asker.publish(job("a"))
    (delivery,) = await world.take(1)
    delivery.reply(Chunk("a", b"first", status=201, headers=(("x", "y"),)))
    delivery.reply(Chunk("a", b"second"))
    delivery.ack()
    assert await inbox.next() == Chunk("a", b"first", status=201, headers=(("x", "y"),))
    await world.settle()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(inbox.next(), 0.001)


async def test_stream_chunks_arrive_in_order_and_those_of_another_delivery_are_not_spliced_in(world):
    inbox = await world.asker.publish(job("a"))
    (first,) = await world.take(1)
    for seq in range(3):
        first.reply(Chunk("a", b"%d" % seq, seq=seq, last=False))
    await world.settle()
    await world.leases_run_out()
    (second,) = await world.take(1)
    second.reply(Chunk("a", b"other 0", seq=0, last=False))
    second.reply(Chunk("a", b"other 3", seq=3, last=True))
    await world.settle()
    first.reply(Chunk("a", b"3", seq=3, last=True))
    assert [(await inbox.next()).data for _ in range(4)] == [b"0", b"1", b"2", b"3"]


async def test_a_job_whose_lease_ran_out_is_delivered_again_and_answered_once(world):
    inbox = await world.asker.publish(job("a"))
    (lost,) = await world.take(1)
    assert not lost.is_again
    await world.leases_run_out()
    (again,) = await world.take(1)
    assert again.is_again
    again.reply(Chunk("a", b"answer"))
    again.ack()
    lost.ack()  # late: it no longer holds the job
    lost.reply(Chunk("a", b"late"))
    assert (await inbox.next()).data == b"answer"
    await world.leases_run_out()
    assert await world.pull() == []


async def test_an_extended_lease_is_kept(world):
    await world.asker.publish(job("a"))
    (delivery,) = await world.take(1)
    await world.most_of_a_lease()
    delivery.extend()
    await world.most_of_a_lease()
    assert await world.pull() == []


async def test_a_given_back_job_goes_to_the_head_of_its_line(world):
    for name in "ab":
        await world.asker.publish(job(name))
    (first,) = await world.take(1)
    first.give_back()
    first.give_back()  # twice is once
    await world.settle()
    both = await world.take(2)
    assert (ids(both), [delivery.is_again for delivery in both]) == (["a", "b"], [True, False])


async def test_closing_the_inbox_of_a_waiting_job_takes_it_out_of_the_line(world):
    inbox = await world.asker.publish(job("a"))
    inbox.close()
    await world.settle()
    assert await world.pull() == []
    assert await world.asker.depths() == {}


async def test_closing_the_inbox_of_a_lent_job_tells_its_holder_and_it_never_returns(world):
    inbox = await world.asker.publish(job("a"))
    (delivery,) = await world.take(1)
    inbox.close()
    await world.hears("cancelled", "a")
    delivery.give_back()
    await world.settle()
    assert await world.pull() == []


async def test_closing_after_the_answer_cancels_nothing(world):
    inbox = await world.asker.publish(job("a"))
    (delivery,) = await world.take(1)
    delivery.reply(Chunk("a", b"answer"))
    delivery.ack()
    await inbox.next()
    inbox.close()
    await world.settle()
    assert ("cancelled", "a") not in world.heard


async def test_a_closed_queue_refuses_and_wakes_its_pullers(world):
    parked = asyncio.ensure_future(world.pull(wait=60))
    await world.settle()
    await world.close()
    assert await parked == []
    with pytest.raises(ShuttingDown):
        await world.asker.publish(job("a"))


async def test_a_puller_that_stops_gets_no_more_jobs_and_its_answers_still_go_out(world):
    inbox = await world.asker.publish(job("1"))
    (delivery,) = await world.take(1)
    waiting = asyncio.create_task(world.pull(wait=30.0))
    await world.settle()
    await world.puller.stop_pulling()
    assert await waiting == []
    await world.asker.publish(job("2"))
    assert await world.pull(wait=30.0) == []
    delivery.reply(Chunk("1", b"answer"))
    delivery.ack()
    assert (await inbox.next()).data == b"answer"
    await world.settle()
    assert (await world.asker.depths())["m"].jobs == 1
