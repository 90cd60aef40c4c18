"""What JetStream is asked to keep: one stream of a pool, one consumer for each line's priority. Requests are JSON.

https://docs.nats.io/reference/reference-protocols/nats_api_reference. Everything here may be asked for again at
any time, by any gateway and any node: the answer is the same.
"""

import math
from datetime import datetime
from typing import Any

import msgspec

from shoal.protocol import subjects
from shoal.protocol.envelope import Priority
from shoal.protocol.errors import (
    InternalError,
    QueueFull,
    QueueUnavailable,
    ResourceExhausted,
    ShoalError,
    over_limit,
)
from shoal.queue import Limits
from shoal.queue import jetstream_room as room
from shoal.queue.jetstream_clock import Clock
from shoal.queue.jetstream_link import Link

GARBAGE_AFTER_S = 3600.0
"""A job nobody took is thrown away. Deadlines are in the envelopes; this bounds what a lost gateway leaves."""
IDLE_CONSUMER_S = 60.0
MOST_PARKED_PULLS = 4096
STREAM_MISSING, NAME_IN_USE, STORE_FULL = 10059, 10058, 10077
NO_MEMORY = (10023, 10028, 10047)


class ApiError(msgspec.Struct, frozen=True):
    code: int = 0
    err_code: int = 0
    description: str = ""


class PubAck(msgspec.Struct, frozen=True):
    """The queue server's word on a job: its place in the stream, or why it was refused."""

    seq: int = 0
    error: ApiError | None = None


class Delivered(msgspec.Struct, frozen=True):
    """`stream_seq` is the place of the last new job that was sent to anybody, at `last_active` of the server's
    clock."""

    consumer_seq: int = 0
    stream_seq: int = 0
    last_active: datetime | None = None


class Config(msgspec.Struct, frozen=True):
    """Of a stream, what is said of limits; 0 where the answer is about something else."""

    max_msgs_per_subject: int = 0
    max_bytes: int = 0


class Answer(msgspec.Struct, frozen=True):
    """`created` is when the stream was, which tells it from one of the same name before it. Of a consumer,
    `delivered` were sent to it and `num_pending` are to be. `ts` is the server's clock.
    """

    error: ApiError | None = None
    created: str = ""
    config: Config = Config()
    num_pending: int = 0
    delivered: Delivered = Delivered()
    ts: datetime | None = None


class StreamState(msgspec.Struct, frozen=True):
    messages: int = 0
    bytes: int = 0
    subjects: dict[str, int] = {}


class _StreamInfo(msgspec.Struct, frozen=True):
    state: StreamState = StreamState()
    config: Config = Config()
    ts: datetime | None = None
    error: ApiError | None = None


class ConsumerInfo(msgspec.Struct, frozen=True):
    """`num_ack_pending` jobs are lent out (or were given back and not taken again)."""

    num_ack_pending: int = 0
    num_waiting: int = 0
    num_pending: int = 0
    delivered: Delivered = Delivered()
    ts: datetime | None = None
    error: ApiError | None = None

    @property
    def idle_s(self) -> float:
        """How long ago a job was last sent to anybody; infinity where that is not known."""
        last = self.delivered.last_active
        return (self.ts - last).total_seconds() if self.ts is not None and last is not None else math.inf


_pub_ack = msgspec.json.Decoder(PubAck)


def read_ack(payload: bytes) -> PubAck:
    return _pub_ack.decode(payload)


class Api:
    def __init__(self, link: Link, pool: str, limits: Limits, clock: Clock, *, may_change: bool = True) -> None:
        """`limits` are those of a stream that is not there yet; one that is there gets them, once, where we
        `may_change` it: from then on everybody goes by what it has.
        """
        self._link = link
        self._pool = pool
        self._limits = limits
        self._clock = clock
        self._may_change = may_change
        self._stream = subjects.stream(pool)
        self.created = ""
        """When the stream that we know was made: another one numbers its jobs anew."""

    async def ensure_stream(self) -> None:
        """Raises QueueUnavailable, or ResourceExhausted where the server may not keep as much as we ask for."""
        answer = await self._make_stream()
        if _has_no_memory(answer) and await room.make_room(self._link, self._pool):
            answer = await self._make_stream()
        if answer.error is not None and _has_no_memory(answer):
            raise ResourceExhausted(
                f"the queue server may not keep {self._limits.bytes_per_line} bytes in memory "
                f"({answer.error.description}); --queue-bytes or its max_memory_store changes it"
                f"{await room.taken_by(self._link, self._pool)}"
            )
        if answer.error is not None:
            raise QueueUnavailable(f"the queue server keeps no stream for us: {answer.error.description}")
        self.created, self._may_change = answer.created, False
        self._heard(answer.config)

    async def _make_stream(self) -> Answer:
        config, asked = self._stream_config(), self._clock.now()
        answer = await ask(self._link, f"STREAM.CREATE.{self._stream}", config)
        if answer.error is not None and answer.error.err_code == NAME_IN_USE:  # it has other limits
            asked = self._clock.now()
            verb = "UPDATE" if self._may_change else "INFO"
            answer = await ask(self._link, f"STREAM.{verb}.{self._stream}", config if self._may_change else {})
        self._clock.heard(asked, answer.ts)
        return answer

    async def ensure_consumer(self, line: str, priority: Priority, size_class: str = "") -> None:
        """Raises QueueUnavailable, also where the stream is missing."""
        name = subjects.consumer(priority, line, size_class)
        subject = subjects.work(self._pool, priority, line, size_class)
        config = {
            "name": name, "durable_name": name, "filter_subject": subject,
            "ack_policy": "explicit", "ack_wait": _ns(self._limits.lease_s), "max_deliver": -1,
            "max_ack_pending": -1, "max_waiting": MOST_PARKED_PULLS, "mem_storage": True,
            "inactive_threshold": _ns(IDLE_CONSUMER_S), "deliver_policy": "all", "replay_policy": "instant",
        }  # fmt: skip
        body = {"stream_name": self._stream, "config": config, "action": ""}
        error = (await ask(self._link, f"CONSUMER.CREATE.{self._stream}.{name}", body)).error
        if error is not None and error.err_code == STREAM_MISSING:
            await self.ensure_stream()
            error = (await ask(self._link, f"CONSUMER.CREATE.{self._stream}.{name}", body)).error
        if error is not None:
            raise QueueUnavailable(f"the queue server opens no line for {line}: {error.description}")

    async def counts(self) -> StreamState:
        """How many jobs each subject holds, lent ones included; the subjects of empty lines are absent."""
        body = msgspec.json.encode({"subjects_filter": subjects.all_work(self._pool)})
        asked = self._clock.now()
        _, payload = await self._link.request(f"$JS.API.STREAM.INFO.{self._stream}", body)
        info = msgspec.json.decode(payload, type=_StreamInfo) if payload else _StreamInfo()
        self._clock.heard(asked, info.ts)
        self._heard(info.config)
        return info.state

    async def lent(self, line: str, priority: Priority, size_class: str = "") -> int:
        """Jobs of a line that some node holds. 0 where nobody has pulled lately."""
        return (await self.pulling(line, priority, size_class)).num_ack_pending

    async def pulling(self, line: str, priority: Priority, size_class: str = "") -> ConsumerInfo:
        """How a line is pulled from, by all nodes together."""
        name = subjects.consumer(priority, line, size_class)
        _, payload = await self._link.request(f"$JS.API.CONSUMER.INFO.{self._stream}.{name}")
        return msgspec.json.decode(payload, type=ConsumerInfo) if payload else ConsumerInfo()

    def delete(self, seq: int) -> None:
        """Take a job out of its line, lent or not. Not waited for."""
        body = msgspec.json.encode({"seq": seq, "no_erase": True})
        self._link.publish(f"$JS.API.STREAM.MSG.DELETE.{self._stream}", body, reply=subjects.ignored())

    def next_subject(self, line: str, priority: Priority, size_class: str = "") -> str:
        return f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{subjects.consumer(priority, line, size_class)}"

    def refusal(self, error: ApiError, line: str) -> ShoalError:
        """Why a job was not taken."""
        limits = self._limits
        if error.err_code == STORE_FULL and "per subject" in error.description:
            return self.line_full(line)
        if error.err_code == STORE_FULL or error.err_code in NO_MEMORY:
            return QueueFull(
                f"the shared queue has no room beside what waits in it ({error.description}); its limit "
                f"is {limits.bytes_per_line} bytes; --queue-bytes changes it",
                limit=limits.bytes_per_line, setting="--queue-bytes",
            )  # fmt: skip
        if error.code == 503:
            return QueueUnavailable(f"the queue server cannot keep the request: {error.description}")
        return InternalError(f"the queue server refused the request: {error.description}")

    @property
    def jobs_per_line(self) -> int:
        """As the pool has it now, whoever set it."""
        return self._limits.jobs_per_line

    def line_full(self, line: str) -> ShoalError:
        limit = self.jobs_per_line
        return over_limit(
            QueueFull, f"the line of {line}", seen=limit + 1, limit=limit, setting="--queue-jobs", unit="jobs"
        )

    def _heard(self, config: Config) -> None:
        """What the stream has, whoever set it: refusals name it, and a stream that is lost gets it again."""
        if config.max_msgs_per_subject > 0 and config.max_bytes > 0:
            self._limits = msgspec.structs.replace(
                self._limits, jobs_per_line=config.max_msgs_per_subject, bytes_per_line=config.max_bytes
            )

    def _stream_config(self) -> dict[str, Any]:
        return {
            "name": self._stream, "subjects": [subjects.all_work(self._pool)], "retention": "workqueue",
            "storage": "memory", "num_replicas": 1, "discard": "new", "discard_new_per_subject": True,
            "max_msgs_per_subject": self._limits.jobs_per_line, "max_msgs": -1,
            "max_bytes": self._limits.bytes_per_line, "max_age": _ns(GARBAGE_AFTER_S),
            "republish": {
                "src": subjects.all_work(self._pool), "dest": subjects.bells(self._pool), "headers_only": True
            },
        }  # fmt: skip


async def ask(link: Link, subject: str, body: object) -> Answer:
    """One question to the server's JetStream. Raises QueueUnavailable."""
    _, payload = await link.request(f"$JS.API.{subject}", msgspec.json.encode(body))
    if not payload:
        raise QueueUnavailable("the queue server keeps no streams: is JetStream on?")
    return msgspec.json.decode(payload, type=Answer)


def _has_no_memory(answer: Answer) -> bool:
    return answer.error is not None and answer.error.err_code in NO_MEMORY


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
