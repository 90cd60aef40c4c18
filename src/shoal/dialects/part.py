"""How nodes ask one another for a part of a large request. It has no route: the gateway never hears of it."""

from typing import Any

import msgspec

from shoal.dialects import Reply, Route, Timing
from shoal.protocol.envelope import Envelope
from shoal.protocol.errors import Fault, InternalError, ShoalError, from_fault
from shoal.protocol.facts import Facts
from shoal.tasks.part import PartRequest, PartResponse

_encoder = msgspec.msgpack.Encoder()
_request = msgspec.msgpack.Decoder(PartRequest)
_response = msgspec.msgpack.Decoder(PartResponse)
_fault = msgspec.msgpack.Decoder(Fault)


class PartDialect:
    name = "part"
    routes: tuple[Route, ...] = ()

    def peek(self, route: str, body: bytes) -> str:
        return ""

    def decode(self, envelope: Envelope, body: bytes) -> PartRequest:
        try:
            return _request.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InternalError(f"a part of a request cannot be read: {error}") from error

    def encode(self, envelope: Envelope, request: Any, response: Any, facts: Facts, timing: Timing) -> Reply:
        return Reply(200, (), _encoder.encode(response))

    def refuse(self, error: ShoalError, *, accept: str = "") -> Reply:
        return Reply(error.status, (), _encoder.encode(error.fault()))


def encode_request(request: PartRequest) -> bytes:
    return _encoder.encode(request)


def read_answer(status: int, body: bytes) -> PartResponse:
    """Raises the ShoalError that the part was refused with; InternalError for an answer that cannot be read."""
    try:
        if status == 200:
            return _response.decode(body)
        refused = from_fault(_fault.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InternalError(f"the answer to a part of a request cannot be read: {error}") from error
    raise refused


DIALECT = PartDialect()
