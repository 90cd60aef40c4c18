"""What is known of a request without opening its body, and the chunks in which it is answered."""

from typing import Literal

import msgspec

ENVELOPE_VERSION = 1
Priority = Literal["interactive", "batch"]


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Travels beside the body. `deadline` and `received` are unix seconds; `size_bytes` is the body's.

    `line` is the base model whose line the job waits in; `model` what nodes call the model that was asked for, and
    `asked` what the client called it, "" where that is the same.
    `route` is the dialect's own route name, so that it can decode the body without seeing the URL.
    """

    id: str
    task: str
    model: str
    line: str
    dialect: str
    route: str
    deadline: float
    received: float
    content_type: str = ""
    accept: str = ""
    size_bytes: int = 0
    priority: Priority = "interactive"
    tenant: str = ""
    traceparent: str = ""
    asked: str = ""
    version: int = ENVELOPE_VERSION

    @property
    def shown(self) -> str:
        """What an answer calls the model."""
        return self.asked or self.model


class Job(msgspec.Struct, frozen=True):
    """One request as it travels the queue: the envelope and the body's bytes, unopened."""

    envelope: Envelope
    body: bytes


class Chunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of an answer. Numbered from 0; `last` ends it. Status and headers count on chunk 0 only.

    An ordinary answer is one chunk; a stream is many.
    """

    job: str
    data: bytes
    seq: int = 0
    last: bool = True
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


def can_read(version: int) -> bool:
    """Whether an envelope of `version` can be served: one minor step of skew either way works."""
    return abs(version - ENVELOPE_VERSION) <= 1
