"""Every way a request can end badly, as one tree. The wire shapes are drawn by the dialects.

    ShoalError
    ├── InvalidInput            400 INVALID_INPUT
    │   └── EmptyInput          400 EMPTY_INPUT
    ├── Unauthorized            401 UNAUTHORIZED
    ├── Forbidden               403 FORBIDDEN
    ├── NotFound                404 NOT_FOUND
    │   └── ModelNotFound       404 MODEL_NOT_FOUND
    ├── MethodNotAllowed        405 METHOD_NOT_ALLOWED
    ├── RequestTimeout          408 REQUEST_TIMEOUT
    ├── Conflict                409 CONFLICT
    ├── InputTooLong            413 INPUT_TOO_LONG
    ├── PayloadTooLarge         413 PAYLOAD_TOO_LARGE
    ├── UnsupportedMediaType    415 UNSUPPORTED_MEDIA_TYPE
    ├── RateLimited             429 RATE_LIMIT            retryable
    ├── Cancelled               499 CANCELLED
    ├── InferenceError          500 INFERENCE_ERROR
    │   ├── NonFiniteOutput     500 NON_FINITE_OUTPUT
    │   └── RuntimeCrashed      500 RUNTIME_CRASHED
    ├── InternalError           500 INTERNAL_ERROR
    ├── ModelLoadFailed         502 MODEL_LOAD_FAILED
    ├── ModelLoading            503 MODEL_LOADING         retryable
    ├── NoNode                  503 PROVISIONING          retryable
    ├── ResourceExhausted       503 RESOURCE_EXHAUSTED    retryable
    ├── QueueFull               503 QUEUE_FULL            retryable
    ├── QueueUnavailable        503 QUEUE_UNAVAILABLE     retryable
    ├── StorageUnavailable      503 STORAGE_UNAVAILABLE   retryable
    ├── ShuttingDown            503 SHUTTING_DOWN         retryable
    └── DeadlineExceeded        504 GATEWAY_TIMEOUT       retryable

A refusal because of a limit is built with `over_limit`, so that it always names the limit, the
size seen and the setting that changes it.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """A `ShoalError` as data: what crosses a process boundary or stands on a failed item."""

    code: str
    message: str
    detail: dict[str, Any] = {}


class ShoalError(Exception):
    """A failure with a stable code. `detail` holds facts for programs, `message` words for people.

    `retry_after_s` is None where trying again is no use; a refusal that knows better than its class says so.
    """

    code: ClassVar[str] = "INTERNAL_ERROR"
    status: ClassVar[int] = 500
    retry_after_s: float | None = None

    def __init__(self, message: str, **detail: Any) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail

    @property
    def retryable(self) -> bool:
        return self.retry_after_s is not None

    def fault(self) -> Fault:
        return Fault(self.code, self.message, self.detail)


class InvalidInput(ShoalError):
    code, status = "INVALID_INPUT", 400


class EmptyInput(InvalidInput):
    code = "EMPTY_INPUT"


class Unauthorized(ShoalError):
    code, status = "UNAUTHORIZED", 401


class Forbidden(ShoalError):
    """The key is good, and not for this."""

    code, status = "FORBIDDEN", 403


class NotFound(ShoalError):
    code, status = "NOT_FOUND", 404


class ModelNotFound(NotFound):
    code = "MODEL_NOT_FOUND"


class MethodNotAllowed(ShoalError):
    code, status = "METHOD_NOT_ALLOWED", 405


class RequestTimeout(ShoalError):
    code, status = "REQUEST_TIMEOUT", 408


class Conflict(ShoalError):
    """It is not as the request takes it to be: another was quicker, or the name is taken."""

    code, status = "CONFLICT", 409


class InputTooLong(ShoalError):
    code, status = "INPUT_TOO_LONG", 413


class PayloadTooLarge(ShoalError):
    code, status = "PAYLOAD_TOO_LARGE", 413


class UnsupportedMediaType(ShoalError):
    code, status = "UNSUPPORTED_MEDIA_TYPE", 415


class RateLimited(ShoalError):
    code, status, retry_after_s = "RATE_LIMIT", 429, 1.0


class Cancelled(ShoalError):
    """The client went away. Nobody reads this; it exists so that every job ends in one way."""

    code, status = "CANCELLED", 499


class InferenceError(ShoalError):
    code = "INFERENCE_ERROR"


class NonFiniteOutput(InferenceError):
    code = "NON_FINITE_OUTPUT"


class RuntimeCrashed(InferenceError):
    """The item was being computed twice when its runtime process died."""

    code = "RUNTIME_CRASHED"


class InternalError(ShoalError):
    """A stranger's exception, made opaque at a boundary; its detail went to the log."""


class ModelLoadFailed(ShoalError):
    code, status = "MODEL_LOAD_FAILED", 502


class ModelLoading(ShoalError):
    code, status, retry_after_s = "MODEL_LOADING", 503, 5.0


class NoNode(ShoalError):
    """Nobody is there to compute. The code is the one that native clients know for it."""

    code, status, retry_after_s = "PROVISIONING", 503, 5.0


class ResourceExhausted(ShoalError):
    code, status, retry_after_s = "RESOURCE_EXHAUSTED", 503, 5.0


class QueueFull(ShoalError):
    code, status, retry_after_s = "QUEUE_FULL", 503, 1.0


class QueueUnavailable(ShoalError):
    """The shared queue's server is gone, or lost the request and nobody may send it again."""

    code, status, retry_after_s = "QUEUE_UNAVAILABLE", 503, 1.0


class StorageUnavailable(ShoalError):
    """The object store does not answer, or not to us."""

    code, status, retry_after_s = "STORAGE_UNAVAILABLE", 503, 5.0


class ShuttingDown(ShoalError):
    code, status, retry_after_s = "SHUTTING_DOWN", 503, 1.0


class DeadlineExceeded(ShoalError):
    code, status, retry_after_s = "GATEWAY_TIMEOUT", 504, 5.0


def _tree(root: type[ShoalError]) -> dict[str, type[ShoalError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


BY_CODE = _tree(ShoalError) | {"INTERNAL_ERROR": InternalError}


def from_fault(fault: Fault) -> ShoalError:
    """The exception that `fault` describes; an unknown code (a newer peer's) is an internal error."""
    return BY_CODE.get(fault.code, InternalError)(fault.message, **fault.detail)


def _plain(number: float) -> str:
    """All digits of a whole number, six of another."""
    return str(int(number)) if number == int(number) else f"{number:g}"


def over_limit(
    kind: type[ShoalError],
    what: str,
    *,
    seen: float,
    limit: float,
    setting: str,
    unit: str = "",
    written: Callable[[float], str] = _plain,
) -> ShoalError:
    """A refusal of `kind` that names the limit, the size seen and the setting that changes it; both numbers
    `written` as that setting is."""
    unit = f" {unit}" if unit else ""
    return kind(
        f"{what} is {written(seen)}{unit}, over the limit of {written(limit)}{unit}; {setting} changes it",
        limit=limit,
        seen=seen,
        setting=setting,
    )
