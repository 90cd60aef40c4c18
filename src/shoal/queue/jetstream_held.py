"""What a node holds of the shared queue: leases kept alive, jobs claimed, answers sent, cancellations heard.

Leases are extended and claims repeated here, on a timer of their own, so that neither waits for a body to be
decoded or a batch to end. A job answered within CLAIM_AFTER_S is never claimed: it costs no message.
"""

import asyncio
import itertools
import logging
import secrets
import time
from collections import defaultdict

import msgspec

from shoal.observe import log as logs
from shoal.protocol import subjects
from shoal.protocol.envelope import Chunk, Job
from shoal.queue import Limits, Listener
from shoal.queue import jetstream_frames as frames
from shoal.queue.jetstream_link import Link

log = logging.getLogger("shoal.queue")
BEAT_EVERY_S = 0.25
CLAIM_AFTER_S = 0.2
CLAIM_EVERY_S = 1.0
GONE_FOR_S = 5.0
"""How long jobs of a gateway that is not there are dropped; it may come back under the same name."""
LATE_BY_S = 5.0
"""A job this long past its deadline is not kept any longer: nobody waits for it."""
_ROOM_FOR_HEAD = 16 * 1024


class JetStreamDelivery:
    """A `Delivery`: a job, and the subject on which the queue server hears what becomes of it."""

    __slots__ = ("_held", "_pieces", "ack_subject", "claim_at", "extend_at", "inbox", "job", "lease", "line")

    def __init__(self, held: "Holdings", line: str, job: Job, inbox: str, ack_subject: str, lease: int) -> None:
        self._held = held
        self._pieces = 0
        self.line, self.job, self.inbox, self.ack_subject, self.lease = line, job, inbox, ack_subject, lease
        self.claim_at = self.extend_at = 0.0

    def reply(self, chunk: Chunk) -> None:
        """A chunk too large for the server goes in pieces; those that follow are numbered on."""
        most = self._held.link.max_payload - _ROOM_FOR_HEAD
        data, last = chunk.data, chunk.last
        seq = chunk.seq + self._pieces
        while len(data) > most:
            piece = Chunk(chunk.job, data[:most], seq, False, chunk.status, chunk.headers)
            self._held.send(self, piece)
            data = data[most:]
            seq += 1
            self._pieces += 1
        self._held.send(self, Chunk(chunk.job, data, seq, last, chunk.status, chunk.headers))

    def ack(self) -> None:
        self._held.end(self, b"")

    def extend(self) -> None:
        self._held.extend(self)

    def give_back(self) -> None:
        self._held.end(self, b"-NAK")


class Holdings:
    def __init__(self, link: Link, limits: Limits, name: str) -> None:
        self.link = link
        self._name = name
        self._extend_every_s = limits.lease_s / 3
        self._loop = asyncio.get_running_loop()
        self._leases = itertools.count(secrets.randbits(48) << 15)
        self._held: dict[int, JetStreamDelivery] = {}
        self._gone: dict[str, float] = {}
        self._listeners: list[Listener] = []
        self._lines: dict[str, int] = defaultdict(int)
        link.subscribe(subjects.node(name), self._on_cancel)
        link.subscribe(subjects.gone(name, "*"), self._on_gone)

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def take(self, line: str, frame: bytes, ack_subject: str) -> JetStreamDelivery | None:
        """A job that just came. None for what cannot be read and for jobs of a gateway that is gone."""
        try:
            job, inbox = frames.decode_job(frame)
        except (msgspec.MsgspecError, ValueError) as error:
            log.error("a job could not be read", extra=logs.fields(line=line, reason=str(error)))
            self.link.publish(ack_subject, b"+TERM")
            return None
        if self._gone and self._loop.time() - self._gone.get(inbox, -GONE_FOR_S) < GONE_FOR_S:
            self.link.publish(ack_subject)
            return None
        delivery = JetStreamDelivery(self, line, job, inbox, ack_subject, next(self._leases))
        now = self._loop.time()
        delivery.claim_at = now + CLAIM_AFTER_S
        delivery.extend_at = now + self._extend_every_s
        self._held[delivery.lease] = delivery
        self._lines[line] += 1
        return delivery

    def count(self, line: str) -> int:
        return self._lines.get(line, 0)

    def send(self, delivery: JetStreamDelivery, chunk: Chunk) -> None:
        gateway = delivery.inbox.rpartition(".")[2]
        self.link.publish(
            delivery.inbox, frames.encode_chunk(chunk, delivery.lease), f"gone.{self._name}.{gateway}"
        )

    def end(self, delivery: JetStreamDelivery, word: bytes) -> None:
        if self._held.pop(delivery.lease, None) is None:
            return
        self._lines[delivery.line] -= 1
        if not self._lines[delivery.line]:
            del self._lines[delivery.line]
        self.link.publish(delivery.ack_subject, word)

    def extend(self, delivery: JetStreamDelivery) -> None:
        if delivery.lease in self._held:
            self.link.publish(delivery.ack_subject, b"+WPI")
            delivery.extend_at = self._loop.time() + self._extend_every_s

    def beat(self) -> None:
        """Called every BEAT_EVERY_S."""
        now, unix = self._loop.time(), time.time()
        claims: dict[str, list[str]] = {}
        for delivery in self._held.values():
            if delivery.extend_at <= now and unix < delivery.job.envelope.deadline + LATE_BY_S:
                self.extend(delivery)
            if delivery.claim_at <= now:
                delivery.claim_at = now + CLAIM_EVERY_S
                claims.setdefault(delivery.inbox, []).append(delivery.job.envelope.id)
        for inbox, jobs in claims.items():
            gone = subjects.gone(self._name, inbox.rpartition(".")[2])
            self.link.publish(inbox, frames.encode_held(subjects.node(self._name), jobs), gone)

    def give_everything_back(self) -> None:
        for delivery in list(self._held.values()):
            delivery.give_back()

    def _on_cancel(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        jobs = set(frames.decode_cancel(payload))
        self._cancel([d for d in self._held.values() if d.job.envelope.id in jobs])

    def _on_gone(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        """A gateway that nobody answers for any more: what it asked for is not computed."""
        inbox = subjects.answer(subject.decode().rpartition(".")[2])
        self._gone[inbox] = self._loop.time()
        if len(self._gone) > 1000:
            self._gone.clear()
        self._cancel([d for d in self._held.values() if d.inbox == inbox])

    def _cancel(self, deliveries: list[JetStreamDelivery]) -> None:
        for delivery in deliveries:
            for listener in self._listeners:
                listener.cancelled(delivery.job.envelope.id)
