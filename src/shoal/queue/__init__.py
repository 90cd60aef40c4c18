"""The queue's contract: what the gateway puts in, what a node pulls out, and how answers come back.

Work waits in lines, one per base model. `inprocess` fills this contract on one machine, `jetstream` in a cluster.
Both pass tests/contract/test_queue.py. Across machines a word takes its way: an ack, a job given back or a
cancellation has its effect a moment later.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

import msgspec

from shoal.protocol.envelope import Chunk, Job, Priority
from shoal.protocol.errors import ShoalError


class Limits(msgspec.Struct, frozen=True):
    """What one line may hold before it refuses, and how long a pulled job is lent for.

    The shared queue counts jobs by line and priority, lent ones included, and bytes for a whole pool together.
    """

    jobs_per_line: int = 10_000
    bytes_per_line: int = 512 * 1024 * 1024
    lease_s: float = 4.0
    promote_after_s: float = 10.0
    """A batch job that has waited this long goes before interactive ones, so that it is never starved."""
    max_wait_s: float = 10.0
    """An interactive job that would wait longer is refused, where the line's pace is known (waits.py)."""


PROMOTED_EVERY = 4
"""One pull in so many begins with a line's batch jobs once they go before interactive ones: were it every pull, a
long batch backlog would keep everybody else waiting."""


class Depth(msgspec.Struct, frozen=True):
    """Jobs waiting (not lent), their bytes, and when the oldest was published (unix seconds).

    The shared queue knows the mean size of all jobs only, and when a line was first seen to hold some.
    """

    jobs: int
    size_bytes: int
    oldest: float


class Bounds(msgspec.Struct, frozen=True):
    """Of what one pull may bring."""

    jobs: int
    size_bytes: int


class Delivery(Protocol):
    """A job lent to a puller until it is acknowledged, given back, or the lease runs out."""

    job: Job

    @property
    def is_again(self) -> bool:
        """Delivered before, and then given back or its lease ran out. Ask when it was just pulled."""
        ...

    def reply(self, chunk: Chunk) -> None:
        """Send a piece of the answer to whoever published the job. Never raises; a lost asker is ignored."""
        ...

    def ack(self) -> None:
        """The job is over: it leaves the queue. Late or repeated acks do nothing."""
        ...

    def extend(self) -> None:
        """Start the lease anew. Does nothing for a job that is no longer ours."""
        ...

    def give_back(self) -> None:
        """Untouched: it goes to the head of its line, and this is no attempt."""
        ...


class Inbox(Protocol):
    """Where the answer to one published job arrives, in order, each chunk once."""

    async def next(self) -> Chunk:
        """The next chunk; a second answer to the same job is dropped, not queued.

        Raises a ShoalError where no more will come: QueueFull for a job that was refused after all,
        QueueUnavailable for one that was lost, ResourceExhausted for an answer that broke off.
        """
        ...

    def close(self) -> None:
        """Nobody listens any more: the job is cancelled unless its last chunk has been taken."""
        ...


class Listener(Protocol):
    """What a node hears without asking. Hints may be lost, and there is none for a line that a pull is parked on;
    `depths` is the truth.
    """

    def work(self, line: str) -> None:
        """A job came to `line`."""
        ...

    def cancelled(self, job_id: str) -> None:
        """The asker of a job that is lent out went away."""
        ...


class Queue(Protocol):
    async def publish(self, job: Job) -> Inbox:
        """Accept a job. Raises QueueFull (limit, size and setting named; also for too long a wait to be expected),
        PayloadTooLarge, QueueUnavailable.

        It may return before the queue has decided: what it then refuses is raised by the inbox's first `next`.
        """
        ...

    def keep_apart(self, line: str) -> None:
        """Its engines pad texts to each other: what is published here in the next APART_S is kept apart by size
        (classes.py), and a pull brings jobs of like size. Said again and again while it holds.
        """
        ...

    def refusal(self, line: str, priority: Priority, deadline: float) -> ShoalError | None:
        """Why `publish` would now refuse a job because of its wait, without one; None where that is not known."""
        ...

    async def pull(self, line: str, *, max_jobs: int, max_bytes: int, wait_s: float) -> list[Delivery]:
        """At least one job as soon as the line has any, interactive before batch, each in order of arrival; of a
        line that is kept apart by size, each size in its order.

        At most `max_jobs`, and at most `max_bytes` of bodies unless the first alone is larger. An empty list
        after `wait_s`.
        """
        ...

    async def pull_any(
        self, wanted: Mapping[str, Bounds], *, wait_s: float, stop: asyncio.Event
    ) -> tuple[str, list[Delivery]]:
        """Jobs of one of these lines as `pull` brings them: of the one whose first job has waited longest, as far
        as that is known. ("", []) after `wait_s`, or once `stop` is set and there are none.
        """
        ...

    async def depths(self) -> dict[str, Depth]:
        """Every line with waiting jobs, in one call."""
        ...

    async def others_waiting(self, line: str) -> int:
        """How many pulls of others are parked on `line`: nodes with nothing to do for it. 0 where there are none
        but this one. Raises QueueUnavailable.
        """
        ...

    async def others_pull(self, line: str, within_s: float) -> bool:
        """Whether another takes jobs of `line`: is parked on it, or took some in the last `within_s`. False where
        there are none but this one. Raises QueueUnavailable.
        """
        ...

    def listen(self, listener: Listener) -> None: ...

    async def stop_pulling(self) -> None:
        """Pulls that wait end, and later ones at once; what is on its way here goes back. Answers still go out."""
        ...

    async def close(self) -> None: ...
