"""OpenAI's embeddings API, with a few fields of our own: prompt_name, input_type, truncate.

It has no place for an error on one input, so one bad input fails the request and is named.
"""

from typing import Any, Literal

import msgspec

from shoal.dialects import Reply, Route, Timing
from shoal.dialects.bodies import JSON, Width, answer_headers, decode, json_only, peek_model
from shoal.dialects.refusals import at, error_fields, refusal
from shoal.protocol.envelope import Envelope
from shoal.protocol.errors import InvalidInput, ModelNotFound, ShoalError
from shoal.protocol.facts import Facts
from shoal.protocol.items import Truncate
from shoal.protocol.tensors import Array
from shoal.tasks.encode import EncodeRequest, EncodeResponse, Text

MAX_INPUTS = 2048
"""OpenAI's own limit on inputs in one request."""

# msgspec tells one array type in a union: which of the three lists it is, `_texts` finds out.
Input = str | list[str | int | list[int]]


class Body(msgspec.Struct, frozen=True):
    input: Input
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Width | None = None
    prompt_name: str | None = None
    input_type: Literal["query", "document", "passage"] | None = None
    truncate: Truncate | None = None


class Embeddings(EncodeRequest, frozen=True, kw_only=True):
    base64: bool = False
    alone: bool = False
    """The input was one string or one list of token ids, not a list of inputs."""


_body = msgspec.json.Decoder(Body)
_encoder = msgspec.json.Encoder()


class OpenAI:
    name = "openai"
    routes = (Route("embeddings", "POST", "/v1/embeddings", "encode", kind="dense"),)

    def peek(self, route: str, body: bytes) -> str:
        return peek_model(body)

    def decode(self, envelope: Envelope, body: bytes) -> Embeddings:
        json_only(envelope.content_type)
        asked = decode(_body, body)
        inputs, alone = _texts(asked.input)
        return Embeddings(
            inputs=inputs,
            alone=alone,
            kinds=("dense",),
            prompt=asked.prompt_name or "",
            is_query=None if asked.input_type is None else asked.input_type == "query",
            dims=asked.dimensions or 0,
            truncate=asked.truncate or "end",
            base64=asked.encoding_format == "base64",
        )

    def encode(
        self, envelope: Envelope, request: Embeddings, response: EncodeResponse, facts: Facts, timing: Timing
    ) -> Reply:
        data = []
        for i, vector in enumerate(response.vectors):
            if vector.dense is None:
                assert vector.fault is not None, "a vector or a fault"
                return self.refuse(at(vector.fault, "input" if request.alone else f"input[{i}]"))
            values = _bytes(vector.dense) if request.base64 else vector.dense.tolist()
            data.append({"object": "embedding", "index": i, "embedding": values})
        body = {
            "object": "list",
            "data": data,
            "model": envelope.shown,
            "usage": {
                "prompt_tokens": response.tokens,
                "total_tokens": response.tokens,
                "truncated": response.truncated,
            },
        }
        headers = answer_headers(envelope, timing, response.truncated, JSON)
        return Reply(200, tuple(headers), _encoder.encode(body))

    def refuse(self, error: ShoalError, *, accept: str = "") -> Reply:
        param = "model" if isinstance(error, ModelNotFound) else None
        fields = {"type": _type(error.status), "param": param} | error_fields(error)
        return refusal(error, {"error": fields})


def _texts(given: Input) -> tuple[list[Text], bool]:
    """The inputs, and whether there was one that stood alone. Raises InvalidInput for no or mixed inputs."""
    if isinstance(given, str):
        return [Text(given)], True
    kinds: set[Any] = set(map(type, given))
    if kinds == {int}:
        return [Text(ids=given)], True  # type: ignore[arg-type]  # all of them are int
    if len(given) > MAX_INPUTS:
        raise InvalidInput(
            f"input has {len(given)} entries, over the limit of {MAX_INPUTS} that this API sets; "
            "send several requests, or use /v1/encode, where --max-items sets the limit",
            limit=MAX_INPUTS,
            seen=len(given),
            setting="--max-items",
            param="input",
        )
    if kinds == {str}:
        return [Text(text) for text in given], False  # type: ignore[arg-type]  # all of them are str
    if kinds == {list}:
        return [Text(ids=ids) for ids in given], False  # type: ignore[arg-type]  # all of them are lists
    wrong = "is empty" if not given else "mixes kinds"
    raise InvalidInput(f"input {wrong}; give a string, strings, token ids, or lists of token ids", param="input")


def _bytes(values: Array) -> bytes:
    """Which the encoder writes as base64."""
    return values.astype("<f4", copy=False).tobytes()


def _type(status: int) -> str:
    known = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    return known.get(status, "invalid_request_error" if status < 500 else "server_error")


DIALECT = OpenAI()
