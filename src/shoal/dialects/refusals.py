"""Errors as JSON replies: the parts that every API's error shape is made of. The shapes are the dialects'."""

import math
from typing import Any

import msgspec

from shoal.dialects import Reply
from shoal.dialects.bodies import JSON, SERVER_VERSION
from shoal.protocol.errors import Fault, ModelLoadFailed, ShoalError, from_fault

_encoder = msgspec.json.Encoder(enc_hook=str)


def error_fields(error: ShoalError) -> dict[str, Any]:
    """`error` as one flat object: its detail, with its code and message, which detail cannot overwrite."""
    fields: dict[str, Any] = {}
    if isinstance(error, ModelLoadFailed):
        # The SDK reads these three to tell a hopeless load from an unlucky one.
        fields = {"error_class": "unknown", "attempts": 1, "permanent": True}
    return fields | error.detail | {"code": error.code, "message": error.message}


def refusal(error: ShoalError, body: dict[str, Any], *, status: int = 0) -> Reply:
    """`body` under the headers that every dialect gives `error`, and its own status unless another is given."""
    headers = [
        ("content-type", JSON),
        ("x-sie-error-code", error.code),
        ("x-sie-server-version", SERVER_VERSION),
    ]
    if error.retry_after_s is not None:
        headers.append(("retry-after", str(max(1, math.ceil(error.retry_after_s)))))
    return Reply(status or error.status, tuple(headers), _bytes(body))


def for_anyone(error: ShoalError) -> Reply:
    """`error` where the path belongs to no API or to several: native clients read `detail`, others `error`."""
    fields = error_fields(error)
    return refusal(error, {"detail": fields, "error": fields})


def at(fault: Fault, param: str) -> ShoalError:
    """The error of one bad input in an API that cannot answer the others: it names which one it was."""
    error = from_fault(fault)
    error.message = f"{param}: {error.message}"
    error.detail = error.detail | {"param": param}
    return error


def _bytes(body: dict[str, Any]) -> bytes:
    try:
        return _encoder.encode(body)
    except UnicodeEncodeError:
        # Someone's lone surrogates, e.g. in a model name: an error must still be told.
        return _encoder.encode(_readable(body))


def _readable(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {_readable(key): _readable(each) for key, each in value.items()}
        case list() | tuple():
            return [_readable(each) for each in value]
    return value
