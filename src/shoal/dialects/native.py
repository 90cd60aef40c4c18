"""Our own API: /v1/encode and /v1/score, in msgpack or JSON, compatible with sie-server 0.10.

One bad item gets an `error` in its place and its neighbours their results; where nothing succeeded, the
first item's error is the answer's.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from shoal.dialects import Reply, Route, Timing
from shoal.dialects.arrays import plain_list, wire_array
from shoal.dialects.bodies import JSON, MSGPACK, Decoder, answer_headers, body_format, decode
from shoal.dialects.ignored import header, ignored
from shoal.dialects.native_bodies import (
    EncodeBody,
    ScoreBody,
    StrictEncodeBody,
    StrictScoreBody,
    encode_request,
    score_request,
)
from shoal.dialects.refusals import error_fields, refusal
from shoal.protocol.envelope import Envelope
from shoal.protocol.errors import Fault, InvalidInput, ShoalError, from_fault
from shoal.protocol.facts import Facts
from shoal.protocol.tensors import Array
from shoal.tasks.encode import EncodeRequest, EncodeResponse, Sparse, Vector
from shoal.tasks.score import Score, ScoreRequest, ScoreResponse

_decoders: dict[tuple[str, str], tuple[Decoder[Any], Decoder[Any]]] = {
    ("encode", "json"): (msgspec.json.Decoder(StrictEncodeBody), msgspec.json.Decoder(EncodeBody)),
    ("encode", "msgpack"): (msgspec.msgpack.Decoder(StrictEncodeBody), msgspec.msgpack.Decoder(EncodeBody)),
    ("score", "json"): (msgspec.json.Decoder(StrictScoreBody), msgspec.json.Decoder(ScoreBody)),
    ("score", "msgpack"): (msgspec.msgpack.Decoder(StrictScoreBody), msgspec.msgpack.Decoder(ScoreBody)),
}
"""First what reads a body whose every field we know, then what reads any."""
_json = msgspec.json.Encoder()
_msgpack = msgspec.msgpack.Encoder()


class EncodeUnread(EncodeRequest, frozen=True, kw_only=True):
    """`unread` are the places of settings that nobody reads."""

    unread: tuple[str, ...]


class ScoreUnread(ScoreRequest, frozen=True, kw_only=True):
    unread: tuple[str, ...]


class Native:
    name = "native"
    routes = (
        Route("encode", "POST", "/v1/encode/{model}", "encode"),
        Route("score", "POST", "/v1/score/{model}", "score"),
    )

    def peek(self, route: str, body: bytes) -> str:
        """Never the body's: the path names the model."""
        return ""

    def decode(self, envelope: Envelope, body: bytes) -> EncodeRequest | ScoreRequest:
        form = body_format(envelope.content_type, body)
        strict, lax = _decoders[envelope.route, form]
        unread: tuple[str, ...] = ()
        try:
            given = decode(strict, body)
        except InvalidInput:
            given = decode(lax, body)
            unread = ignored(envelope.route, form, body)
        variant = envelope.line.partition(":")[2]
        request: EncodeRequest | ScoreRequest
        if isinstance(given, EncodeBody):
            request = encode_request(given, variant=variant)
            return _with(EncodeUnread, request, unread) if unread else request
        request = score_request(given, packed=form == "msgpack", variant=variant)
        return _with(ScoreUnread, request, unread) if unread else request

    def encode(
        self,
        envelope: Envelope,
        request: EncodeRequest | ScoreRequest,
        response: EncodeResponse | ScoreResponse,
        facts: Facts,
        timing: Timing,
    ) -> Reply:
        as_json = wants_json(envelope.accept)
        faults: list[Fault | None]
        if isinstance(response, EncodeResponse):
            faults = [vector.fault for vector in response.vectors]
            body = _encode_body(response, timing, plain_list if as_json else wire_array)
        else:
            assert isinstance(request, ScoreRequest), "a score response answers a score request"
            faults = [score.fault for score in response.scores]
            body = _score_body(request, response)
        if faults[0] is not None and None not in faults:
            return self.refuse(from_fault(faults[0]), accept=envelope.accept)
        body = {"model": envelope.shown} | body
        headers = answer_headers(envelope, timing, response.truncated, JSON if as_json else MSGPACK)
        headers.append(("x-sie-units-input-tokens", str(response.tokens)))
        if isinstance(request, EncodeUnread | ScoreUnread):
            headers.append(("x-shoal-ignored", header(request.unread)))
        encoder = _json if as_json else _msgpack
        return Reply(200, tuple(headers), encoder.encode(body))

    def refuse(self, error: ShoalError, *, accept: str = "") -> Reply:
        """Always JSON: every client of this wire reads it, and so does a person."""
        key = "error" if error.retryable or error.status == 502 else "detail"
        return refusal(error, {key: error_fields(error)})


R = TypeVar("R", EncodeUnread, ScoreUnread)


def _with(kind: type[R], request: EncodeRequest | ScoreRequest, unread: tuple[str, ...]) -> R:
    return kind(**msgspec.structs.asdict(request), unread=unread)


def wants_json(accept: str) -> bool:
    """msgpack unless the client names JSON and not msgpack."""
    if not accept:
        return False
    accept = accept.lower()
    return JSON in accept and "msgpack" not in accept


def _encode_body(response: EncodeResponse, timing: Timing, values: Callable[[Array], Any]) -> dict[str, Any]:
    def item(vector: Vector) -> dict[str, Any]:
        found: dict[str, Any] = {} if vector.id is None else {"id": vector.id}
        if vector.fault is not None:
            found["error"] = _error(vector.fault)
        if vector.dense is not None:
            found["dense"] = {"dims": response.dims, "dtype": response.dtype, "values": values(vector.dense)}
        if vector.sparse is not None:
            found["sparse"] = _sparse(vector.sparse, values)
        if vector.multivector is not None:
            found["multivector"] = {
                "token_dims": response.token_dims,
                "num_tokens": len(vector.multivector),
                "dtype": response.dtype,
                "values": values(vector.multivector),
            }
        return found

    return {
        "items": [item(vector) for vector in response.vectors],
        "timing": {
            "total_ms": timing.total_ms,
            "queue_ms": timing.queue_ms,
            "tokenization_ms": timing.tokenize_ms,
            "inference_ms": timing.compute_ms,
        },
        "usage": {"input_tokens": response.tokens, "truncated": response.truncated},
    }


def _sparse(sparse: Sparse, values: Callable[[Array], Any]) -> dict[str, Any]:
    """`dims` would be the vocabulary's size, which only the runtime knows."""
    return {
        "dims": None,
        "dtype": sparse.values.dtype.name,
        "indices": values(sparse.indices),
        "values": values(sparse.values),
    }


_FAILED = -3.4028234663852886e38
"""The score beside an error: the least fp32, so that clients which sort by score put it last."""


def _score_body(request: ScoreRequest, response: ScoreResponse) -> dict[str, Any]:
    def entry(rank: int, score: Score) -> dict[str, Any]:
        known = request.documents[score.index].id
        found: dict[str, Any] = {
            "item_id": f"item-{score.index}" if known is None else known,
            "score": _FAILED if score.score is None else score.score,
            "rank": rank,
        }
        if score.fault is not None:
            found["error"] = _error(score.fault)
        return found

    return {
        "query_id": request.query_id,
        "scores": [entry(rank, score) for rank, score in enumerate(response.ranked())],
        "usage": {"input_tokens": response.tokens, "truncated": response.truncated},
    }


def _error(fault: Fault) -> dict[str, str]:
    return {"code": fault.code, "message": fault.message}


DIALECT = Native()
