"""Pulling from several lines at once: the one that has waited longest, and whoever waits hears of the next job."""

import asyncio

import pytest

from contract.test_queue import job, nats, world
from contract.test_queue_others import ends, settled, until
from shoal.queue import Bounds, jetstream_any

__all__ = ["ends", "nats", "world"]
LONG_S = 60.0


def bounds(*lines, jobs=10):
    return {line: Bounds(jobs, 1 << 20) for line in lines}


async def pull(end, *lines, jobs=10, wait_s=LONG_S, stop=None):
    line, lent = await end.pull_any(bounds(*lines, jobs=jobs), wait_s=wait_s, stop=stop or asyncio.Event())
    return line, [delivery.job.envelope.id for delivery in lent]


async def test_lines_take_turns_by_how_long_their_first_job_has_waited(world):
    for name in ("m1", "n1", "m2", "n2"):
        await world.asker.publish(job(name, line=name[0], received=world.now))
        world.now += 0.001
    await world.settle()
    taken = [await pull(world.puller, "m", "n", jobs=1) for _ in range(4)]
    assert taken == [("m", ["m1"]), ("n", ["n1"]), ("m", ["m2"]), ("n", ["n2"])]


async def test_one_pull_brings_jobs_of_one_line_and_no_more_than_it_asked_for(world):
    for name in ("m1", "n1", "m2", "m3"):
        await world.asker.publish(job(name, line=name[0]))
    await world.settle()
    assert await pull(world.puller, "m", "n", jobs=2) == ("m", ["m1", "m2"])


async def test_lines_that_were_not_named_are_left_alone(world):
    await world.asker.publish(job("other", line="other"))
    await world.settle()
    assert await pull(world.puller, "m", "n", wait_s=0.01) == ("", [])
    assert await pull(world.puller, "m", "other") == ("other", ["other"])


@pytest.mark.parametrize("priority", ["interactive", "batch"])
async def test_who_waits_gets_the_next_job_of_any(world, priority, monkeypatch):
    monkeypatch.setattr(jetstream_any, "LOOK_EVERY_S", LONG_S)  # the bell alone tells
    waiting = asyncio.create_task(pull(world.puller, "m", "n"))
    await world.settle()
    await world.asker.publish(job("next", line="n", priority=priority))
    assert await asyncio.wait_for(waiting, LONG_S / 2) == ("n", ["next"])


async def test_who_waits_gets_a_job_that_is_kept_apart_by_size(world, monkeypatch):
    monkeypatch.setattr(jetstream_any, "LOOK_EVERY_S", LONG_S)
    waiting = asyncio.create_task(pull(world.puller, "m", "n"))
    await world.settle()
    world.asker.keep_apart("n")
    await world.asker.publish(job("next", line="n", body=b"x" * 300))
    assert await asyncio.wait_for(waiting, LONG_S / 2) == ("n", ["next"])


async def test_a_wait_ends_when_it_is_told_to_stop(world):
    stop = asyncio.Event()
    waiting = asyncio.create_task(pull(world.puller, "m", "n", stop=stop))
    await world.settle()
    stop.set()
    assert await waiting == ("", [])


async def test_a_wait_ends_when_no_more_is_to_be_pulled(world):
    waiting = asyncio.create_task(pull(world.puller, "m", "n"))
    await world.settle()
    await world.puller.stop_pulling()
    assert await waiting == ("", [])


async def test_of_several_that_wait_each_gets_one_of_the_jobs_that_come_at_once(ends, monkeypatch):
    """Bells that ring at a node which has just found work are rung again, for others."""
    monkeypatch.setattr(jetstream_any, "LOOK_EVERY_S", LONG_S)
    gateway, *nodes = ends
    for turn in range(20):
        waiting = [asyncio.create_task(pull(node, "m", "n", jobs=1)) for node in nodes]
        await until(lambda: listens_on_both(gateway))
        for number in range(2):
            await gateway.publish(job(f"{turn}-{number}", line="mn"[number]))
        found = await asyncio.wait_for(asyncio.gather(*waiting), LONG_S / 2)
        assert sorted(name for _, (name,) in found) == [f"{turn}-0", f"{turn}-1"]


async def listens_on_both(gateway):
    return await gateway.others_waiting("m") > 0 and await gateway.others_waiting("n") > 0


async def test_others_see_that_a_node_waits_on_several_lines(ends):
    _, node, other = ends
    assert not await other.others_waiting("m")
    stop = asyncio.Event()
    waiting = asyncio.create_task(pull(node, "m", "n", stop=stop))
    await until(lambda: other.others_pull("n", 0.0))
    assert await other.others_waiting("m") == 1
    assert not await node.others_waiting("m"), "nobody else waits"
    stop.set()
    await waiting
    assert not await other.others_waiting("m")


async def test_what_others_took_is_known(ends):
    """A line that another node has just served waits its turn here too."""
    gateway, node, other = ends
    for end in (node, other):
        await pull(end, "m", "n", wait_s=0.0)
    for name in ("m1", "n1"):
        await gateway.publish(job(name, line=name[0]))
    await settled(ends)
    assert await pull(other, "m", "n") == ("m", ["m1"])
    for name in ("m2", "n2"):
        await gateway.publish(job(name, line=name[0]))
    await settled(ends)
    assert await pull(node, "m", "n", jobs=1) == ("n", ["n1"])
