"""What every queue owes of a line whose jobs are kept apart by size: what it owes of any other."""

import asyncio
import random
import secrets

import pytest

from contract.queue_worlds import FaultyWorld, InProcessWorld, JetStreamWorld
from contract.test_queue import ALWAYS, ids, job, nats, refusal
from shoal.catalog.pushed import Pushed
from shoal.cli._cluster import APART_FROM_PER_S, Cluster
from shoal.protocol.status import LineStatus, ModelStatus, NodeStatus
from shoal.queue import Limits
from shoal.queue.classes import BOUNDS, size_class
from shoal.queue.jetstream import JetStreamQueue

__all__ = ["nats"]
SMALL, MIDDLE, LARGE, HUGE = b"x" * 50, b"x" * 200, b"x" * 600, b"x" * 3100
assert len({size_class(len(body)) for body in (SMALL, MIDDLE, LARGE, HUGE)}) == 4


@pytest.fixture(params=["in process", "in process, with faults", "jetstream"])
async def world(request):
    match request.param:
        case "in process":
            world = InProcessWorld()
        case "in process, with faults":
            world = FaultyWorld(ALWAYS)
        case _:
            world = await JetStreamWorld.open(request.getfixturevalue("nats").url)
    world.asker.keep_apart("m")
    yield world
    await world.close()


async def publish(world, *sent, priority="interactive"):
    inboxes = [await world.asker.publish(job(name, priority=priority, body=body)) for name, body in sent]
    await world.settle()
    return inboxes


async def test_each_size_comes_out_in_its_order_and_nothing_stays(world):
    await publish(world, ("1", SMALL), ("2", LARGE), ("3", SMALL), ("4", LARGE))
    await world.hears("work", "m")
    lent = await world.take(4)
    for delivery in lent:
        delivery.ack()
    taken = ids(lent)
    assert (taken.index("1") < taken.index("3"), taken.index("2") < taken.index("4")) == (True, True)
    await world.settle()
    assert await world.pull() == []


async def test_a_pull_keeps_to_its_bounds(world):
    await publish(world, ("1", SMALL), ("2", LARGE), ("3", SMALL), ("4", LARGE))
    assert len(await world.pull(jobs=1)) == 1
    assert sum(len(delivery.job.body) for delivery in await world.pull(size=700)) <= 700
    assert len(await world.take(1)) == 1


async def test_a_body_beyond_the_largest_size_is_pulled_like_any_other(world):
    assert len(HUGE) > BOUNDS[-1]
    await publish(world, ("1", HUGE))
    assert ids(await world.pull(size=10)) == ["1"]


@pytest.mark.parametrize("body", [SMALL, MIDDLE, LARGE, HUGE])
async def test_a_parked_pull_gets_the_next_job_of_whatever_size(world, body):
    await publish(world, ("first", MIDDLE))
    (first,) = await world.take(1)
    first.ack()
    parked = asyncio.ensure_future(world.pull(wait=5.0))
    await world.settle()
    await publish(world, ("a", body))
    assert ids(await parked) == ["a"]


async def test_what_is_parked_beside_an_answered_pull_takes_nothing_with_it(world):
    await publish(world, ("first", MIDDLE))
    (first,) = await world.take(1)
    first.ack()
    parked = asyncio.ensure_future(world.pull(wait=5.0))
    await world.settle()
    await publish(world, ("small", SMALL))
    assert ids(await parked) == ["small"]
    await publish(world, ("large", LARGE))
    assert ids(await world.take(1)) == ["large"]


async def test_a_parked_pull_gets_a_batch_job_too(world):
    parked = asyncio.ensure_future(world.pull(wait=5.0))
    await world.settle()
    await publish(world, ("a", LARGE), priority="batch")
    assert ids(await parked) == ["a"]


async def test_interactive_jobs_of_any_size_go_before_batch_jobs(world):
    await publish(world, ("slow", SMALL), priority="batch")
    await publish(world, ("large", LARGE), ("small", SMALL))
    assert ids(await world.take(3))[2] == "slow"


async def test_depths_are_of_the_whole_line(world):
    await publish(world, ("1", SMALL), ("2", LARGE), ("3", MIDDLE))
    assert {line: depth.jobs for line, depth in (await world.asker.depths()).items()} == {"m": 3}
    await world.take(3)
    assert await world.asker.depths() == await world.puller.depths() == {}


async def test_a_line_is_full_by_all_its_sizes_together(world):
    await publish(world, ("1", SMALL), ("2", MIDDLE), ("3", LARGE), ("4", SMALL))
    assert await refusal(world, job("5", body=MIDDLE)) == (
        "the line of m is 5 jobs, over the limit of 4 jobs; --queue-jobs changes it"
    )


async def test_a_given_back_job_goes_to_the_head_of_its_size(world):
    await publish(world, ("1", SMALL), ("2", SMALL), ("3", LARGE))
    lent = {delivery.job.envelope.id: delivery for delivery in await world.take(3)}
    lent["1"].give_back()
    await world.settle()
    (again,) = await world.take(1)
    assert (again.job.envelope.id, again.is_again) == ("1", True)


async def test_a_job_whose_lease_ran_out_is_delivered_again(world):
    await publish(world, ("1", SMALL), ("2", LARGE))
    await world.take(2)
    await world.leases_run_out()
    assert sorted(ids(await world.take(2))) == ["1", "2"]


async def test_closing_the_inbox_takes_a_waiting_job_out(world):
    first, _ = await publish(world, ("1", LARGE), ("2", SMALL))
    first.close()
    await world.settle()
    (second,) = await world.take(1)
    second.ack()
    assert second.job.envelope.id == "2"
    await world.settle()
    assert await world.pull() == []


async def test_what_was_published_before_a_line_was_kept_apart_is_pulled_too(world):
    await world.asker.publish(job("before", line="other", body=LARGE))
    world.asker.keep_apart("other")
    await world.asker.publish(job("after", line="other", body=SMALL))
    await world.settle()
    assert sorted(ids(await world.take(2, line="other"))) == ["after", "before"]


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_no_job_is_lost_between_pulls_that_are_parked_on_every_size(nats, seed):
    """A lost one would come again when its lease ran out: here never."""
    pool, limits = secrets.token_hex(4), Limits(10_000, 10**8, lease_s=600.0)
    asker, *pullers = [await JetStreamQueue.connect(nats.url, pool, limits) for _ in range(5)]
    asker.keep_apart("m")
    came: set[str] = set()

    async def look():
        """As a node does: it tells where there are jobs of which size."""
        while len(came) < len(sent):
            await asyncio.gather(*(puller.depths() for puller in pullers))
            await asyncio.sleep(0.1)

    async def pull(puller):
        while len(came) < len(sent):
            for delivery in await puller.pull("m", max_jobs=8, max_bytes=4000, wait_s=0.5):
                came.add(delivery.job.envelope.id)
                delivery.ack()

    rng = random.Random(seed)
    sent = [(str(number), rng.choice([SMALL, MIDDLE, LARGE, HUGE])) for number in range(3000)]
    try:
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(look())
            for puller in pullers:
                tasks.create_task(pull(puller))
            for at in range(0, len(sent), 4):
                await asyncio.gather(*(asker.publish(job(name, body=body)) for name, body in sent[at : at + 4]))
                await asyncio.sleep(rng.uniform(0, 0.004))
        assert came == {name for name, _ in sent}
    finally:
        for end in (asker, *pullers):
            await end.close()


async def test_a_gateway_keeps_apart_what_pads_and_is_asked_for_often(nats):
    queue = await JetStreamQueue.connect(nats.url, secrets.token_hex(4), Limits())
    try:
        cluster = Cluster(Pushed(), queue)
        pads, packs = ModelStatus(state="ready", pads=True), ModelStatus(state="ready")
        often, seldom = (LineStatus(items_per_s=rate) for rate in (APART_FROM_PER_S, APART_FROM_PER_S / 2))
        cluster.told(
            NodeStatus(
                node="a",
                models={"often": pads, "seldom": pads, "packs": packs, "never": pads},
                lines={"often": often, "seldom": seldom, "packs": often},
            )
        )
        assert queue._asks.apart.lines(queue._clock()) == ["often"]
    finally:
        await queue.close()
