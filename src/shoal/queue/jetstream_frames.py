"""What travels through the queue server, as bytes: a job, a piece of an answer, a node's word on what it holds.

Pure. Each payload is a kind byte (also the version), the length of a msgpack head, the head, and raw data.
"""

import struct

import msgspec

from shoal.protocol.envelope import Chunk, Envelope, Job, Priority

JOB, CHUNK, HELD, CANCEL, SERVED = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05"
_START = struct.Struct("<BI")


class JobHead(msgspec.Struct, frozen=True):
    """`inbox` is the subject that the answer goes to."""

    envelope: Envelope
    inbox: str


class ChunkHead(msgspec.Struct, frozen=True, array_like=True):
    """`lease` tells two deliveries of the same job apart."""

    job: str
    lease: int
    seq: int
    last: bool
    status: int
    headers: tuple[tuple[str, str], ...]


class Held(msgspec.Struct, frozen=True, array_like=True):
    """A node's word that it holds these jobs, and the subject it hears cancellations on."""

    node: str
    jobs: list[str]


class Served(msgspec.Struct, frozen=True, array_like=True):
    """How far a node has served some classes of a line, in places of the stream made at `era`."""

    node: str
    era: str
    priority: Priority
    newest: int
    marks: list[tuple[str, int]]


_encoder = msgspec.msgpack.Encoder()
_job_head = msgspec.msgpack.Decoder(JobHead)
_chunk_head = msgspec.msgpack.Decoder(ChunkHead)
_held = msgspec.msgpack.Decoder(Held)
_served = msgspec.msgpack.Decoder(Served)
_cancel = msgspec.msgpack.Decoder(list[str])


def _framed(kind: bytes, head: object, data: bytes = b"") -> bytes:
    raw = _encoder.encode(head)
    return b"".join((_START.pack(kind[0], len(raw)), raw, data))


def _head(frame: bytes) -> tuple[bytes, int]:
    size = _START.unpack_from(frame)[1]
    return frame[_START.size : _START.size + size], _START.size + size


def encode_job(job: Job, inbox: str) -> bytes:
    return _framed(JOB, JobHead(job.envelope, inbox), job.body)


def decode_job(frame: bytes) -> tuple[Job, str]:
    """The job and the subject its answer goes to. Raises ValueError for what is no job of ours."""
    if frame[:1] != JOB or len(frame) < _START.size:
        raise ValueError("not a job")
    raw, end = _head(frame)
    head = _job_head.decode(raw)
    return Job(head.envelope, frame[end:]), head.inbox


def encode_chunk(chunk: Chunk, lease: int) -> bytes:
    head = ChunkHead(chunk.job, lease, chunk.seq, chunk.last, chunk.status, chunk.headers)
    return _framed(CHUNK, head, chunk.data)


def decode_chunk(frame: bytes) -> tuple[Chunk, int]:
    raw, end = _head(frame)
    head = _chunk_head.decode(raw)
    return Chunk(head.job, frame[end:], head.seq, head.last, head.status, head.headers), head.lease


def encode_held(node: str, jobs: list[str]) -> bytes:
    return _framed(HELD, Held(node, jobs))


def decode_held(frame: bytes) -> Held:
    return _held.decode(_head(frame)[0])


def encode_served(served: Served) -> bytes:
    return _framed(SERVED, served)


def decode_served(frame: bytes) -> Served:
    return _served.decode(_head(frame)[0])


def encode_cancel(jobs: list[str]) -> bytes:
    return _framed(CANCEL, jobs)


def decode_cancel(frame: bytes) -> list[str]:
    return _cancel.decode(_head(frame)[0])
