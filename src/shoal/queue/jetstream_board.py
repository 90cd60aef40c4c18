"""The board of a cluster on NATS: notes in a key-value bucket, in memory; statuses as plain messages.

The bucket has the layout of NATS' own, so that `nats kv` reads it; an empty note is one that was taken down. Notes
are read through a push consumer that begins with the last of each key and goes on with what comes. Who put a note
up keeps it, and puts it up again on a server that has lost it.
"""

import asyncio
import itertools
import logging
import secrets
from collections.abc import Callable

import msgspec

from shoal.observe import log as logs
from shoal.protocol import subjects
from shoal.protocol.errors import QueueUnavailable
from shoal.protocol.status import NodeStatus
from shoal.queue.board import Reader
from shoal.queue.jetstream_api import NAME_IN_USE, Answer, ask
from shoal.queue.jetstream_link import Link

log = logging.getLogger("shoal.queue")
IDLE_READER_S = 30.0
READ_WITHIN_S = 10.0


class JetStreamBoard:
    def __init__(self, link: Link, pool: str) -> None:
        self._link, self._pool = link, pool
        self._name = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._readers: list[Reader] = []
        self._ours: dict[str, bytes] = {}
        self._created = ""
        self._up_at = 0.0
        self._is_up = False
        self._subscription: int | None = None
        self._consumer = ""
        self._prefix = len(subjects.all_notes(pool)) - 1
        self._status = msgspec.json.Decoder(NodeStatus)
        self._read_notes = self._notes_to_read = 0
        self._has_read = asyncio.Event()

    @property
    def era(self) -> str:
        return self._created

    def listening_s(self) -> float:
        return asyncio.get_running_loop().time() - self._up_at if self._is_up else 0.0

    def put(self, key: str, note: bytes, *, keep: bool = True) -> None:
        if keep:
            self._ours[key] = note
        if self._is_up:
            self._publish(key, note)

    def take_down(self, key: str) -> None:
        self._ours.pop(key, None)
        if self._is_up:
            self._publish(key, b"")

    def tell(self, status: NodeStatus) -> None:
        if self._is_up:
            self._link.publish(subjects.status(self._pool, status.node), msgspec.json.encode(status))

    async def watch(self, reader: Reader) -> None:
        if not self._readers:
            self._link.subscribe(subjects.status(self._pool, "*"), self._on_status)
        self._readers.append(reader)
        if self._is_up:
            await self._read()
        try:
            async with asyncio.timeout(READ_WITHIN_S):
                await self._has_read.wait()
        except TimeoutError:
            raise QueueUnavailable("the queue server does not show its board") from None

    def close(self) -> None:
        """We read no more: nobody has to notice by himself (jetstream_room.py)."""
        if self._is_up and self._consumer:
            stream = subjects.notes_stream(self._pool)
            self._link.publish(f"$JS.API.CONSUMER.DELETE.{stream}.{self._consumer}", reply=subjects.ignored())

    # What the connection says.

    def link_down(self) -> None:
        self._is_up = False

    async def link_up(self) -> None:
        """Raises QueueUnavailable."""
        created = await self._ensure_bucket()
        self._is_up, self._up_at = True, asyncio.get_running_loop().time()
        if created != self._created:
            self._created = created
            for key, note in self._ours.items():
                self._publish(key, note)
        if self._readers:
            await self._read()

    async def _ensure_bucket(self) -> str:
        """When it was made, which tells it from one before it."""
        stream = subjects.notes_stream(self._pool)
        config = {
            "name": stream, "subjects": [subjects.all_notes(self._pool)], "storage": "memory", "num_replicas": 1,
            "max_msgs_per_subject": 1, "max_bytes": -1, "discard": "new", "allow_rollup_hdrs": True,
            "deny_delete": True, "allow_direct": True, "max_msgs": -1, "max_age": 0,
        }  # fmt: skip
        answer = await ask(self._link, f"STREAM.CREATE.{stream}", config)
        if answer.error is not None and answer.error.err_code == NAME_IN_USE:
            answer = await ask(self._link, f"STREAM.INFO.{stream}", {})
        if answer.error is not None:
            raise QueueUnavailable(f"the queue server keeps no board for us: {answer.error.description}")
        return answer.created

    async def _read(self) -> None:
        """Begin again with the last note of each key."""
        old = self._subscription
        self._has_read.clear()
        self._read_notes, self._notes_to_read = 0, -1
        number = next(self._numbers)
        deliver = subjects.notes(f"{self._name}.{number}")
        self._subscription = self._link.subscribe(deliver, self._on_note)
        if old is not None:
            await self._link.unsubscribe(old)
        name = self._consumer = f"{self._name}-{number}"
        stream = subjects.notes_stream(self._pool)
        config = {
            "name": name, "deliver_subject": deliver, "deliver_policy": "last_per_subject", "ack_policy": "none",
            "filter_subject": subjects.all_notes(self._pool), "mem_storage": True, "replay_policy": "instant",
            "inactive_threshold": int(IDLE_READER_S * 1e9),
        }  # fmt: skip
        body = {"stream_name": stream, "config": config, "action": ""}
        answer: Answer = await ask(self._link, f"CONSUMER.CREATE.{stream}.{name}", body)
        if answer.error is not None:
            raise QueueUnavailable(f"the queue server does not show its board: {answer.error.description}")
        self._notes_to_read = answer.num_pending + answer.delivered.consumer_seq
        self._look_whether_all_read()

    def _look_whether_all_read(self) -> None:
        if 0 <= self._notes_to_read <= self._read_notes:
            self._has_read.set()

    def _publish(self, key: str, note: bytes) -> None:
        self._link.publish(subjects.note(self._pool, key), note, reply=subjects.ignored())

    # Hearing.

    def _on_note(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        key = subjects.name_of(subject[self._prefix :].decode())
        self._read_notes += 1
        self._look_whether_all_read()
        if not payload and key in self._ours:  # another took it down, but it is ours as well
            self._publish(key, self._ours[key])
            return
        self._each(lambda reader: reader.noted(key, payload or None))

    def _on_status(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        try:
            status = self._status.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            log.warning("a node's status cannot be read", extra=logs.fields(reason=str(error)))
            return
        self._each(lambda reader: reader.told(status))

    def _each(self, act: Callable[[Reader], None]) -> None:
        for reader in self._readers:
            act(reader)
