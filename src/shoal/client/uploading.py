"""One file sent in parts, from wherever the server has it to its end, through connections that break.

The flow reads the file; the network is its driver's. Knows the route for parts, not what they are sent for.
"""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import msgspec

from shoal.catalog.manifests import File
from shoal.client import answers
from shoal.client.calls import ask
from shoal.client.errors import ServerUnreachable
from shoal.client.flow import Flow, Request, Sleep, Terms
from shoal.client.retry import backoff_s, longest_s
from shoal.protocol.errors import Conflict, InvalidInput, PayloadTooLarge, RequestTimeout, ShoalError

FIRST_BYTES, LEAST_BYTES = 1024 * 1024, 64 * 1024
MOST_PARTS = 4000
"""A server takes a few more than that of one file, and no more."""
QUICK_S, SLOW_S = 1.0, 5.0
"""A part that went quickly is followed by one twice as long, one that went slowly by half of it: servers bound the
time that one may take."""
MOST_LOSSES = 8
"""So many parts may fail one after the other, without a byte more having arrived, before we give up."""


class Sending(msgspec.Struct, frozen=True):
    """`place` holds the file's content; `most_bytes` is what the server takes at once."""

    file: File
    place: Path
    most_bytes: int

    @property
    def least_bytes(self) -> int:
        return min(max(LEAST_BYTES, self.file.size_bytes // MOST_PARTS + 1), self.most_bytes)


def send(terms: Terms, sending: Sending, offset: int, tell: Callable[[int], None]) -> Flow[None]:
    """All of a file from `offset` on; `tell` is told up to where it has come. A server that has more or less of it
    than we thought says so. Raises InvalidInput where the file changes meanwhile.
    """
    file, losses = sending.file, 0
    length = max(min(FIRST_BYTES, sending.most_bytes), sending.least_bytes)
    with sending.place.open("rb") as reader:
        while offset < file.size_bytes:
            tell(offset)
            reader.seek(offset)
            part = reader.read(min(length, file.size_bytes - offset))
            if not part:
                raise InvalidInput(f"{sending.place} was changed while it was sent; push again")
            began, was = terms.now(), offset
            try:
                offset = yield from ask(terms, _part(file, offset, part), _reached)
                length = _next(length, terms.now() - began, sending)
            except Conflict as error:
                if "offset" not in error.detail or losses >= MOST_LOSSES:
                    raise
                offset = int(error.detail["offset"])
            except (RequestTimeout, PayloadTooLarge, ServerUnreachable) as error:
                is_shorter = length > sending.least_bytes
                if losses >= MOST_LOSSES or not (is_shorter or isinstance(error, ServerUnreachable)):
                    raise
                length = max(length // 4, sending.least_bytes)
                yield _pause(terms, losses + 1, error)
            losses = 0 if offset > was else losses + 1
    tell(file.size_bytes)


def _pause(terms: Terms, losses: int, error: ShoalError) -> Sleep:
    return Sleep(backoff_s(losses, terms.chance()), error, longest_s(losses, MOST_LOSSES))


def _next(length: int, took_s: float, sending: Sending) -> int:
    if took_s < QUICK_S:
        return min(length * 2, sending.most_bytes)
    return max(length // 2, sending.least_bytes) if took_s > SLOW_S else length


def _part(file: File, offset: int, part: bytes) -> Request:
    named = quote(file.path, safe="/", errors="replace")
    path = f"/v1/uploads/{file.sha256}?offset={offset}&size={file.size_bytes}&path={named}"
    headers = {"accept": "application/json", "content-type": "application/octet-stream"}
    return Request("PUT", path, headers, part)


class _Reached(msgspec.Struct, frozen=True):
    offset: int


_decoder = msgspec.json.Decoder(_Reached)


def _reached(body: bytes) -> int:
    return answers.decoded(_decoder, body).offset
