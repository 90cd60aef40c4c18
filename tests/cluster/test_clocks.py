"""Machines whose clocks differ by minutes, in one pool: a deadline means the same to all of them."""

import asyncio
import secrets
import time
from datetime import UTC, datetime

import msgspec
import pytest

from contract.test_queue import job
from shoal.protocol.envelope import Chunk, Job
from shoal.queue.jetstream import JetStreamQueue
from shoal.queue.jetstream_clock import Clock
from shoal.testing.nats import nats_server

MINUTES = (600.0, -600.0)


def off_by(seconds: float):
    return lambda: time.time() + seconds


def sent_at(now: float) -> Job:
    usual = job("a")
    return Job(msgspec.structs.replace(usual.envelope, deadline=now + 60, received=now), usual.body)


@pytest.mark.parametrize("node_s", MINUTES)
@pytest.mark.parametrize("gateway_s", [0.0, 300.0])
async def test_a_job_has_its_time_left_whatever_the_clocks_of_gateway_and_node_say(node_s, gateway_s):
    pool = secrets.token_hex(4)
    with nats_server() as server:
        gateway = await JetStreamQueue.connect(server.url, pool, clock=off_by(gateway_s))
        node = await JetStreamQueue.connect(server.url, pool, clock=off_by(node_s), may_change=False)
        try:
            inbox = await gateway.publish(sent_at(time.time() + gateway_s))
            async with asyncio.timeout(60):
                [delivery] = await node.pull("m", max_jobs=1, max_bytes=1000, wait_s=30)
                left_s = delivery.job.envelope.deadline - (time.time() + node_s)
                assert 0 < left_s < 62
                await asyncio.sleep(1)  # time enough to give up what would be late
                assert not delivery.is_over
                delivery.reply(Chunk("a", b"done"))
                delivery.ack()
                assert (await inbox.next()).data == b"done"
        finally:
            await node.close()
            await gateway.close()


def test_a_question_that_took_long_says_nothing_against_what_is_known():
    now = [1000.0]
    clock = Clock(lambda: now[0])
    clock.heard(1000.0, datetime.fromtimestamp(995.0, UTC))
    assert clock.ahead_s == pytest.approx(5.0)
    now[0] = 1020.0
    clock.heard(1010.0, datetime.fromtimestamp(1010.0, UTC))  # this process stood still meanwhile
    assert clock.ahead_s == pytest.approx(5.0)
    clock.heard(1020.0, datetime.fromtimestamp(1020.0, UTC))  # somebody set it right
    assert clock.ahead_s == 0.0
    clock.heard(1020.0, None)
    assert clock.ahead_s == 0.0
