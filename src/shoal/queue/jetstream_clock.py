"""How far this machine's clock is from the queue server's, so that a deadline means the same on every machine.

Envelopes travel with times of the server's clock. What the server says of its own time comes with answers to
questions that are asked anyway; a node whose clock was minutes ahead would else refuse all that it pulled.
"""

import logging
from collections.abc import Callable
from datetime import datetime

import msgspec

from shoal.observe import log as logs
from shoal.protocol.envelope import Job

log = logging.getLogger("shoal.queue")
UNHEEDED_S = 0.1
"""Clocks that differ by less are called equal."""
WORTH_SAYING_S = 2.0


class Clock:
    """`now` is this machine's, in unix seconds; `ahead_s` is by how much it is ahead of the server's."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.ahead_s = 0.0

    def heard(self, asked: float, said: datetime | None) -> None:
        """An answer came just now that was asked for at `asked`, of `now`; in between the server's clock showed
        `said`. What that agrees with is kept: the question may have taken long."""
        if said is None:
            return
        server, now = said.timestamp(), self.now()
        least, most = asked - server - UNHEEDED_S, now - server + UNHEEDED_S
        if least <= self.ahead_s <= most:
            return
        ahead_s = 0.0 if least <= 0.0 <= most else (asked + now) / 2 - server
        if abs(ahead_s - self.ahead_s) > WORTH_SAYING_S:
            log.warning(
                "the clocks of this machine and the queue server differ; deadlines are told by the server's",
                extra=logs.fields(ahead_s=round(ahead_s, 1)),
            )
        self.ahead_s = ahead_s

    def sent(self, job: Job) -> Job:
        """As it travels."""
        return _moved(job, -self.ahead_s) if self.ahead_s else job

    def received(self, job: Job) -> Job:
        """In this machine's time."""
        return _moved(job, self.ahead_s) if self.ahead_s else job


def _moved(job: Job, seconds: float) -> Job:
    envelope = job.envelope
    moved = msgspec.structs.replace(
        envelope, deadline=envelope.deadline + seconds, received=envelope.received + seconds
    )
    return Job(moved, job.body)
