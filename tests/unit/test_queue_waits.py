"""Who is refused because of the wait that is to be expected, on a line that is simulated second by second."""

import asyncio
import itertools
import random
from collections import deque

import msgspec
import pytest

from shoal.protocol.envelope import Chunk, Envelope, Job
from shoal.protocol.errors import QueueFull
from shoal.queue import Limits
from shoal.queue.inprocess import InProcessQueue
from shoal.queue.waits import FEW, Crowd, Wait, refusal

CROWDED = Wait(jobs=1000, ahead=50_000.0, per_second=2500.0)


class Line:
    """A line that answers `per_second` bytes a second in bursts of `burst` jobs, refusing by the rule."""

    def __init__(self, per_second: float, burst: int = 8, max_wait_s: float = 10.0) -> None:
        self.crowd, self.now = Crowd(), 0.0
        self.per_second, self.burst, self.max_wait_s = per_second, burst, max_wait_s
        self.jobs: deque[tuple[str, int]] = deque()
        self.arrived: dict[str, float] = {}
        self.waited: list[float] = []
        self.refused: list[float] = []
        self._budget = 0.0

    def offer(self, size: int, left_s: float = 1e9) -> QueueFull | None:
        error = refusal("m", self.crowd.wait("interactive"), "interactive", left_s, self.max_wait_s)
        if error is not None:
            self.refused.append(self.now)
            return error
        name = str(len(self.arrived))
        self.arrived[name] = self.now
        self.crowd.add(name, "interactive", size)
        self.jobs.append((name, size))
        return None

    def run(self, seconds: float, offered: float, size: int | random.Random = 50) -> None:
        """`offered` jobs a second arrive, in steps of 10 ms."""
        for _ in range(round(seconds * 100)):
            self.now += 0.01
            for _ in range(round(offered / 100)):
                self.offer(size if isinstance(size, int) else round(size.lognormvariate(4, 1)))
            self._budget = self._budget + self.per_second / 100 if self.jobs else 0.0
            burst = list(itertools.islice(self.jobs, self.burst))
            while burst and self._budget >= sum(size for _, size in burst):
                for name, size_bytes in burst:
                    self._budget -= size_bytes
                    self.jobs.popleft()
                    self.crowd.over(name, self.now, answered=True)
                    self.waited.append(self.now - self.arrived[name])
                burst = list(itertools.islice(self.jobs, self.burst))


def test_a_line_whose_pace_is_not_known_refuses_nobody():
    line = Line(per_second=0)
    line.run(2, offered=5000)
    assert not line.refused
    assert len(line.jobs) == 10_000


def test_three_times_what_can_be_served_is_refused_above_the_wait_that_is_allowed_and_the_device_stays_busy():
    line = Line(per_second=50_000, max_wait_s=1.0)
    line.run(20, offered=3000)
    assert 0.8 < max(line.waited[-1000:]) < 1.2
    assert len(line.waited) > 0.97 * 1000 * 20, "a thousand a second can be served"


def test_the_allowed_wait_is_kept_to_with_texts_of_every_length():
    line = Line(per_second=50_000, max_wait_s=1.0)
    line.run(20, offered=3000, size=random.Random(5))
    late = line.waited[len(line.waited) // 2 :]
    assert min(late) > 0.6
    assert max(late) < 1.5


def test_below_what_can_be_served_nobody_is_refused():
    line = Line(per_second=50_000, burst=32, max_wait_s=1.0)
    line.run(20, offered=900)
    assert not line.refused


def test_refusals_end_when_the_load_does():
    line = Line(per_second=50_000, max_wait_s=1.0)
    line.run(10, offered=3000)
    ended = line.now
    line.run(10, offered=500)
    assert all(at <= ended + 0.5 for at in line.refused)


def test_after_an_outage_the_line_is_as_fast_as_before_within_seconds():
    line = Line(per_second=50_000, max_wait_s=1.0)
    line.run(10, offered=3000)
    line.per_second = 0
    line.run(30, offered=3000)
    line.per_second = 50_000
    line.run(10, offered=3000)
    assert line.crowd.wait("interactive").per_second == pytest.approx(50_000, rel=0.15)
    before = len(line.waited)
    line.run(5, offered=3000)
    assert len(line.waited) - before > 0.95 * 5000


def test_a_lone_client_is_never_refused_however_slow_the_model():
    line = Line(per_second=1000)
    line.run(20, offered=100)  # the pace is known
    line.run(100, offered=0)
    for _ in range(20):
        assert line.offer(50_000) is None
        line.run(51, offered=0)


def test_few_jobs_are_never_too_many_and_one_more_may_be():
    slow = {"ahead": 1e6, "per_second": 1.0}
    assert refusal("m", Wait(jobs=FEW - 1, **slow), "interactive", 60.0, 10.0) is None
    assert refusal("m", Wait(jobs=FEW, **slow), "interactive", 60.0, 10.0) is not None


def test_requests_of_ten_thousand_texts_do_not_keep_single_ones_out():
    line = Line(per_second=5000, burst=1)
    line.run(10, offered=100)
    for _ in range(5):
        line.crowd.add(f"many {_}", "interactive", 1_000_000)
    assert line.crowd.wait("interactive").seconds < 1.0
    assert line.offer(50) is None


def test_a_refusal_names_the_wait_the_limit_and_the_option_and_says_when_to_come_back():
    error = refusal("m", CROWDED, "interactive", 60.0, 10.0)
    assert error.message == "the expected wait for m is 20 s, over the limit of 10 s; --max-wait changes it"
    assert error.detail == {"seen": 20.0, "limit": 10.0, "setting": "--max-wait"}
    assert (error.code, error.retry_after_s) == ("QUEUE_FULL", 15.0)


def test_whoever_would_be_answered_after_his_deadline_is_refused_at_once_whatever_the_priority():
    for priority in ("interactive", "batch"):
        error = refusal("m", CROWDED, priority, 5.0, 10.0)
        assert "X-Shoal-Timeout-Ms" in error.message
        assert error.detail["limit"] == 5.0
    assert refusal("m", CROWDED, "batch", 60.0, 10.0) is None


def test_time_to_come_back_is_whole_seconds_from_one_to_sixty():
    hair = refusal("m", Wait(1000, 1001.0, 1000.0), "interactive", 60.0, 1.0)
    hopeless = refusal("m", Wait(1000, 1e9, 1000.0), "interactive", 60.0, 1.0)
    assert (hair.retry_after_s, hopeless.retry_after_s) == (1.0, 60.0)


def test_batch_jobs_wait_behind_interactive_ones_and_not_the_other_way_round():
    line = Line(per_second=50_000)
    line.run(5, offered=1500)
    ahead = line.crowd.wait("interactive").ahead
    for number in range(100_000):
        line.crowd.add(f"batch {number}", "batch", 50)
    assert line.crowd.wait("interactive").ahead == ahead
    assert line.crowd.wait("batch").ahead == ahead + 100_000 * 50


def job(name: str, now: float, size: int = 50) -> Job:
    envelope = Envelope(
        id=name, task="encode", model="m", line="m", dialect="native", route="encode",
        deadline=now + 60, received=now,
    )  # fmt: skip
    return Job(envelope, b"x" * size)


async def test_the_queue_learns_from_answers_and_not_from_refusals_or_from_who_left():
    now = 1000.0
    queue = InProcessQueue(Limits(max_wait_s=1.0), clock=lambda: now)

    async def fill(count: int, status: int) -> None:
        """Keep 50 waiting, and end ten every 100 ms."""
        nonlocal now
        for number in range(count):
            await queue.publish(job(f"{status} {now} {number}", now))
            if number >= 50 and number % 10 == 0:
                now += 0.1
                for lent in await queue.pull("m", max_jobs=10, max_bytes=1 << 20, wait_s=0):
                    lent.reply(Chunk(lent.job.envelope.id, b"", status=status))
                    lent.ack()

    await fill(500, 400)
    await asyncio.gather(*(queue.publish(job(f"more {n}", now)) for n in range(500)))  # no pace is known
    for lent in await queue.pull("m", max_jobs=1000, max_bytes=1 << 20, wait_s=0):
        lent.ack()
    await fill(500, 200)  # a hundred a second

    async def flood() -> None:
        for number in range(200):
            await queue.publish(job(f"late {number}", now))

    with pytest.raises(QueueFull, match="--max-wait") as refused:
        await flood()
    assert 1.0 < refused.value.detail["seen"] < 1.05


async def test_a_backlog_of_old_batch_jobs_takes_a_share_and_not_all():
    now = 1000.0
    queue = InProcessQueue(Limits(), clock=lambda: now)
    for number in range(20):
        await queue.publish(batch_job(f"batch {number}", now))
    now += 60
    for number in range(20):
        await queue.publish(job(f"quick {number}", now))
    taken = await queue.pull("m", max_jobs=20, max_bytes=1 << 20, wait_s=0)
    assert [lent.job.envelope.priority for lent in taken].count("batch") == 5
    assert taken[0].job.envelope.id == "batch 0"


def batch_job(name: str, now: float) -> Job:
    made = job(name, now)
    return Job(msgspec.structs.replace(made.envelope, priority="batch", deadline=now + 600), made.body)
