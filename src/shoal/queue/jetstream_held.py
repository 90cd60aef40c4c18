"""What a node holds of the shared queue: leases kept alive, jobs claimed, answers sent, cancellations heard.

Leases are extended and claims repeated here, on a timer of their own, so that neither waits for a body to be
decoded or a batch to end. A job answered within CLAIM_AFTER_S is never claimed: it costs no message.
"""

import asyncio
import itertools
import logging
import secrets
from collections import defaultdict

import msgspec

from shoal.observe import log as logs
from shoal.protocol import subjects
from shoal.protocol.envelope import Chunk, Job
from shoal.queue import Limits, Listener
from shoal.queue import jetstream_frames as frames
from shoal.queue.jetstream_clock import Clock
from shoal.queue.jetstream_link import Link

log = logging.getLogger("shoal.queue")
BEAT_EVERY_S = 0.25
CLAIM_AFTER_S = 0.2
CLAIM_EVERY_S = 1.0
GONE_AFTER_S = 1.5
"""A gateway that cannot be reached for this long is gone; one that is just reconnecting is back sooner."""
FORGET_GONE_S = 3.0
LATE_BY_S = 5.0
"""A job this long past its deadline is given up, whoever still holds it: nobody waits for it."""
_ROOM_FOR_HEAD = 16 * 1024


class JetStreamDelivery:
    """A `Delivery`: a job, and the subject on which the queue server hears what becomes of it."""

    __slots__ = (
        "_held", "_pieces", "ack_subject", "claim_at", "extend_at", "inbox", "is_over", "job", "lease", "line",
    )  # fmt: skip

    def __init__(self, held: "Holdings", line: str, job: Job, inbox: str, ack_subject: str, lease: int) -> None:
        self._held = held
        self._pieces = 0
        self.line, self.job, self.inbox, self.ack_subject, self.lease = line, job, inbox, ack_subject, lease
        self.claim_at = self.extend_at = 0.0
        self.is_over = False

    @property
    def is_again(self) -> bool:
        return _numbers(self.ack_subject)[:1] != ["1"]

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
    def __init__(self, link: Link, limits: Limits, name: str, clock: Clock) -> None:
        self.link = link
        self._clock = clock
        self._name = name
        self._extend_every_s = limits.lease_s / 3
        self._loop = asyncio.get_running_loop()
        self._leases = itertools.count(secrets.randbits(48) << 15)
        self._held: dict[str, JetStreamDelivery] = {}  # by the job's id
        self._gone: dict[str, tuple[float, float]] = {}  # inboxes nobody listens to: since when, last seen so
        self._listeners: list[Listener] = []
        self._stream = ""
        self._unsaid: list[tuple[str, bytes]] | None = []  # None while the server and its stream are known
        self._lines: dict[str, int] = defaultdict(int)
        link.subscribe(subjects.node(name), self._on_cancel)
        link.subscribe(subjects.gone(name, "*"), self._on_gone)

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def take(self, line: str, frame: bytes, ack_subject: str) -> JetStreamDelivery | None:
        """A job that just came; None for what cannot be read."""
        try:
            job, inbox = frames.decode_job(frame)
        except (msgspec.MsgspecError, ValueError) as error:
            log.error("a job could not be read", extra=logs.fields(line=line, reason=str(error)))
            self._say(ack_subject, b"+TERM")
            return None
        delivery = JetStreamDelivery(self, line, self._clock.received(job), inbox, ack_subject, next(self._leases))
        now = self._loop.time()
        delivery.claim_at = now if inbox in self._gone else now + CLAIM_AFTER_S
        delivery.extend_at = now + self._extend_every_s
        self._replace(delivery)
        return delivery

    def count(self, line: str) -> int:
        return self._lines.get(line, 0)

    def send(self, delivery: JetStreamDelivery, chunk: Chunk) -> None:
        gateway = delivery.inbox.rpartition(".")[2]
        self.link.publish(
            delivery.inbox, frames.encode_chunk(chunk, delivery.lease), f"gone.{self._name}.{gateway}"
        )

    def end(self, delivery: JetStreamDelivery, word: bytes) -> None:
        if delivery.is_over:
            return
        self._forget(delivery)
        self._say(delivery.ack_subject, word)

    def extend(self, delivery: JetStreamDelivery) -> None:
        if not delivery.is_over:
            self._say(delivery.ack_subject, b"+WPI")
            delivery.extend_at = self._loop.time() + self._extend_every_s

    def beat(self) -> None:
        """Called every BEAT_EVERY_S."""
        now, unix = self._loop.time(), self._clock.now()
        claims: dict[str, list[str]] = {}
        for delivery in list(self._held.values()):
            if unix > delivery.job.envelope.deadline + LATE_BY_S:
                self.end(delivery, b"")
                continue
            if delivery.extend_at <= now:
                self.extend(delivery)
            if delivery.claim_at <= now:
                delivery.claim_at = now + CLAIM_EVERY_S
                claims.setdefault(delivery.inbox, []).append(delivery.job.envelope.id)
        self._gone = {i: (since, last) for i, (since, last) in self._gone.items() if now - last < FORGET_GONE_S}
        for inbox, jobs in claims.items():
            gone = subjects.gone(self._name, inbox.rpartition(".")[2])
            self.link.publish(inbox, frames.encode_held(subjects.node(self._name), jobs), gone)

    def link_down(self) -> None:
        self._unsaid = []

    def link_up(self, stream: str) -> None:
        """`stream` is when it was made. A new one gives our acks' numbers to other jobs: none may be said."""
        unsaid, self._unsaid = self._unsaid or [], None
        if stream == self._stream:
            for ack_subject, word in unsaid:
                self._say(ack_subject, word)
            return
        self._stream = stream
        for delivery in self._held.values():
            delivery.ack_subject = ""

    def give_everything_back(self) -> None:
        for delivery in list(self._held.values()):
            delivery.give_back()

    def _say(self, ack_subject: str, word: bytes = b"") -> None:
        if self._unsaid is not None:
            self._unsaid.append((ack_subject, word))
        elif ack_subject:
            self.link.publish(ack_subject, word)

    def _replace(self, delivery: JetStreamDelivery) -> None:
        """The same job again: our lease ran out (the same message), or the gateway sent it a second time."""
        job = delivery.job.envelope.id
        earlier = self._held.get(job)
        if earlier is not None:
            self._forget(earlier)
            if _place(earlier.ack_subject) != _place(delivery.ack_subject):
                self._say(earlier.ack_subject)
        self._held[job] = delivery
        self._lines[delivery.line] += 1

    def _forget(self, delivery: JetStreamDelivery) -> None:
        delivery.is_over = True
        del self._held[delivery.job.envelope.id]
        self._lines[delivery.line] -= 1
        if not self._lines[delivery.line]:
            del self._lines[delivery.line]

    def _on_cancel(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        self._cancel([self._held[job] for job in frames.decode_cancel(payload) if job in self._held])

    def _on_gone(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        """The queue server found nobody at a gateway's inbox: what a lost gateway asked for is not computed."""
        inbox = subjects.answer(subject.decode().rpartition(".")[2])
        now = self._loop.time()
        since, _ = self._gone.get(inbox, (now, now))
        self._gone[inbox] = since, now
        if now - since >= GONE_AFTER_S:
            self._cancel([d for d in self._held.values() if d.inbox == inbox])

    def _cancel(self, deliveries: list[JetStreamDelivery]) -> None:
        for delivery in deliveries:
            for listener in self._listeners:
                listener.cancelled(delivery.job.envelope.id)


def _place(ack_subject: str) -> str:
    """A message's place in its stream."""
    return "".join(_numbers(ack_subject)[1:2])


def place_of(ack_subject: str) -> tuple[int, int]:
    """A message's place in its stream, and how many more its consumer has yet to send."""
    numbers = _numbers(ack_subject)
    return int(numbers[1]), int(numbers[4])


def _numbers(ack_subject: str) -> list[str]:
    """How often it was delivered, its place, and more. `$JS.ACK.` is followed by 7 parts, of newer servers by 9 or
    more, the first of which are names.
    """
    parts = ack_subject.split(".")
    return parts[4:] if len(parts) <= 9 else parts[6:]
