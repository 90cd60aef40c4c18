"""A gateway's side of the shared queue: jobs on their way, the server's word on them, and their answers.

A job is published without waiting; an error ack fails its inbox. What may be sent again is decided in `flights`.
"""

import asyncio
import itertools
import logging

import msgspec

from shoal.observe import log as logs
from shoal.protocol import subjects
from shoal.protocol.envelope import Chunk, Job, Priority
from shoal.protocol.errors import (
    PayloadTooLarge,
    QueueUnavailable,
    ShoalError,
    ShuttingDown,
    over_limit,
)
from shoal.queue import Limits, flights, waits
from shoal.queue import jetstream_frames as frames
from shoal.queue.answers import Answer
from shoal.queue.classes import Apart
from shoal.queue.flights import Budget, Flight, Verdict
from shoal.queue.jetstream_api import STREAM_MISSING, Api, read_ack
from shoal.queue.jetstream_clock import Clock
from shoal.queue.jetstream_full import Fullness
from shoal.queue.jetstream_link import Link
from shoal.queue.waits import Crowd

log = logging.getLogger("shoal.queue")
SWEEP_EVERY_S = 0.5
SILENCE_AFTER_LEASE_S = 2.0
"""A lost node's job comes to another when its lease ends; only if nobody claims it then is it sent again."""
OUTAGE_S = 10.0
"""How long requests are kept while the queue server is away."""
HINT_AFTER_S = 1.0
"""A line that got no job for this long is announced to the nodes when one comes."""
MOST_UNSENT_BYTES = 256 * 1024 * 1024


class Ask:
    """An `Inbox`, and its job for as long as it may have to be sent again."""

    __slots__ = (
        "_asks", "answer", "cancelled", "flight", "id", "line", "node", "payload", "place", "sent_at", "subject",
    )  # fmt: skip

    def __init__(self, asks: "Asks", job: Job, subject: str, payload: bytes) -> None:
        self._asks = asks
        self.id, self.line = job.envelope.id, job.envelope.line
        self.subject, self.payload = subject, payload
        self.answer = Answer()
        self.flight = Flight()
        self.place = b""  # the server's ack, read only when the job must be taken out
        self.node = ""
        self.sent_at = 0.0
        self.cancelled = False

    async def next(self) -> Chunk:
        return await self.answer.next()

    def close(self) -> None:
        self._asks.forget(self)


class Asks:
    def __init__(self, link: Link, api: Api, pool: str, limits: Limits, name: str, clock: Clock) -> None:
        self._link, self._api, self._pool, self._name = link, api, pool, name
        self._limits, self._clock = limits, clock
        self._patience_s = limits.lease_s + SILENCE_AFTER_LEASE_S
        self._crowds: dict[str, Crowd] = {}
        self._loop = asyncio.get_running_loop()
        self._inbox = subjects.answer(name)
        self._numbers = itertools.count(1)
        self._by_id: dict[str, Ask] = {}
        self._unaccepted: dict[int, Ask] = {}
        self._subjects: dict[tuple[str, str, str], str] = {}
        self._hinted: dict[str, float] = {}
        self.apart = Apart()
        self._fullness = Fullness(api, self._crowds)
        self._budget = Budget()
        self._ready = False
        self._down_at = self._loop.time()
        self._closed = False
        link.subscribe(self._inbox, self._on_answer)
        link.subscribe(subjects.accepted(name, "*"), self._on_accepted)

    def publish(self, job: Job) -> Ask:
        """1. Closing. 2. The server is away for long. 3. It would wait too long, or the line is full and no
        class of it. 4. Too large for the server. 5. Sent, or kept until the server is back.
        """
        if self._closed:  # 1
            raise ShuttingDown("the queue is closed")
        if not self._ready and self._loop.time() - self._down_at > OUTAGE_S:  # 2
            raise QueueUnavailable("the queue server cannot be reached")
        if self._link.unsent_bytes() > MOST_UNSENT_BYTES:
            raise QueueUnavailable("the queue server takes requests more slowly than they come")
        envelope = job.envelope
        if error := self.refusal(envelope.line, envelope.priority, envelope.deadline):  # 3
            raise error
        size_class = self.apart.class_of(envelope.line, len(job.body), self._clock.now())
        if size_class and self._fullness.is_full(envelope.line, envelope.priority):
            raise self._api.line_full(envelope.line)
        payload = frames.encode_job(self._clock.sent(job), self._inbox)
        if len(payload) > self._link.max_payload:  # 4
            raise over_limit(
                PayloadTooLarge, "the request with its envelope", seen=len(payload), limit=self._link.max_payload,
                setting="max_payload of the queue server", unit="bytes",
            )  # fmt: skip
        ask = Ask(self, job, self._subject(envelope.priority, envelope.line, size_class), payload)
        self._by_id[ask.id] = ask
        self._crowds.setdefault(ask.line, Crowd()).add(ask.id, envelope.priority, len(job.body))
        self._budget.earn()
        if self._ready:  # 5
            self._send(ask)
        return ask

    def refusal(self, line: str, priority: Priority, deadline: float) -> ShoalError | None:
        """Of a line that gateways share, each has a share of the jobs ahead and the same share of the answers."""
        crowd = self._crowds.get(line)
        if crowd is None:
            return None
        left_s = deadline - self._clock.now()
        return waits.refusal(line, crowd.wait(priority), priority, left_s, self._limits.max_wait_s)

    def forget(self, ask: Ask) -> None:
        """Nobody listens to it any more: whatever of it is still in the queue or with a node is taken back."""
        if self._by_id.get(ask.id) is not ask:
            return
        del self._by_id[ask.id]
        answered = ask.answer.complete and ask.answer.status < 300
        self._crowds[ask.line].over(ask.id, self._clock.now(), answered=answered)
        if ask.answer.complete and ask.flight.tries <= 1:
            return
        if ask.place:
            self._take_out(ask)
        else:
            ask.cancelled = True  # once its place is known
        if ask.node:
            self._link.publish(ask.node, frames.encode_cancel([ask.id]))

    # What the connection says.

    def link_down(self) -> None:
        self._ready = False
        self._down_at = self._loop.time()
        self._unaccepted.clear()

    def link_up(self) -> None:
        """The stream is there (again, and perhaps empty): decide about each job that nobody has answered."""
        self._ready = True
        now = self._loop.time()
        for ask in list(self._by_id.values()):
            if ask.flight.claimed_at is not None:
                ask.flight.claimed_at = now
            self._act(ask, flights.after_reconnect(ask.flight, ask.answer.started, self._budget))

    def sweep(self) -> None:
        """Called every SWEEP_EVERY_S: jobs whose node fell silent, and an outage that lasts."""
        now = self._loop.time()
        if not self._ready:
            if now - self._down_at > OUTAGE_S:
                for ask in list(self._by_id.values()):
                    ask.answer.fail(QueueUnavailable("the queue server cannot be reached"))
            return
        unclaimed: set[str] = set()
        for ask in list(self._by_id.values()):
            verdict = flights.after_silence(ask.flight, ask.answer.started, self._budget, now, self._patience_s)
            self._act(ask, verdict)
            if ask.flight.claimed_at is None and now - ask.sent_at > self._limits.lease_s:
                unclaimed.add(ask.subject)
        for subject in unclaimed:
            # It waits long, or its node was lost before it could claim it: the server counts such a job as lent
            # until somebody pulls, and whoever does not hold the model pulls only when it hears of work.
            self._hint(subject)
        self._fullness.sweep(self.apart.lines(self._clock.now()))
        if len(self._hinted) > 1000:
            self._hinted = {line: at for line, at in self._hinted.items() if now - at < HINT_AFTER_S}

    def close(self) -> None:
        self._closed = True
        self._fullness.close()
        for ask in list(self._by_id.values()):
            ask.answer.fail(ShuttingDown("the queue is closed"))

    # Sending.

    def _subject(self, priority: Priority, line: str, size_class: str) -> str:
        subject = self._subjects.get((priority, line, size_class))
        if subject is None:
            if len(self._subjects) > 10_000:
                self._subjects.clear()
            subject = subjects.work(self._pool, priority, line, size_class)
            self._subjects[priority, line, size_class] = subject
        return subject

    def _send(self, ask: Ask) -> None:
        number = next(self._numbers)
        self._unaccepted[number] = ask
        ask.flight.sent = True
        ask.flight.tries += 1
        ask.flight.claimed_at = None
        ask.place, ask.node = b"", ""
        self._link.publish(ask.subject, ask.payload, subjects.accepted(self._name, number))
        ask.sent_at = now = self._loop.time()
        if now - self._hinted.get(ask.subject, 0.0) > HINT_AFTER_S:
            self._hint(ask.subject)
        self._hinted[ask.subject] = now

    def _hint(self, subject: str) -> None:
        self._link.publish(subjects.hint(self._pool), subject.encode())

    def _act(self, ask: Ask, verdict: Verdict) -> None:
        if verdict is Verdict.SEND and ask.answer.failure is None:
            self._send(ask)
        elif verdict is Verdict.REFUSE:
            ask.answer.fail(QueueUnavailable("the request was lost on its way and is not sent again; ask again"))

    def _take_out(self, ask: Ask) -> None:
        seq = read_ack(ask.place).seq
        if seq:
            self._api.delete(seq)

    # Hearing.

    def _on_accepted(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        ask = self._unaccepted.pop(int(subject[subject.rfind(b".") + 1 :]), None)
        if ask is None:
            return
        if headers or b'"error"' in payload:
            self._refused(ask, headers, payload)
            return
        ask.place = payload
        if ask.cancelled:
            self._take_out(ask)

    def _refused(self, ask: Ask, headers: bytes, payload: bytes) -> None:
        error = None if headers else read_ack(payload).error
        if error is not None and error.err_code != STREAM_MISSING:
            ask.answer.fail(self._api.refusal(error, ask.line))
        elif not ask.cancelled and self._by_id.get(ask.id) is ask:
            self._loop.create_task(self._without_stream(ask))

    async def _without_stream(self, ask: Ask) -> None:
        """The server has no stream: somebody removed it, or it just came up."""
        try:
            await self._api.ensure_stream()
        except ShoalError as error:
            ask.answer.fail(error)
            return
        if self._ready and self._by_id.get(ask.id) is ask:
            self._act(ask, flights.after_no_stream(ask.flight))

    def _on_answer(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        try:
            if payload[:1] == frames.CHUNK:
                self._on_chunk(payload)
            elif payload[:1] == frames.HELD:
                self._on_held(frames.decode_held(payload))
        except (msgspec.MsgspecError, ValueError) as error:
            log.error("an answer could not be read", extra=logs.fields(reason=str(error)))

    def _on_chunk(self, payload: bytes) -> None:
        chunk, lease = frames.decode_chunk(payload)
        ask = self._by_id.get(chunk.job)
        if ask is None:
            return
        if not chunk.last:
            ask.flight.claimed_at = self._loop.time()
        ask.answer.put(chunk, lease)

    def _on_held(self, held: frames.Held) -> None:
        now = self._loop.time()
        unwanted = []
        for job in held.jobs:
            ask = self._by_id.get(job)
            if ask is None or ask.answer.complete:
                unwanted.append(job)
            else:
                ask.flight.claimed_at, ask.node = now, held.node
        if unwanted:
            self._link.publish(held.node, frames.encode_cancel(unwanted))
