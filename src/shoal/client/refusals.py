"""What went wrong, as the exception it stands for: the server's code, its status if there is none."""

from collections.abc import Mapping
from typing import Any

import msgspec

from shoal.client.errors import BadAnswer, ServerUnreachable
from shoal.client.flow import ConnectionFailed, Outcome, Received, Terms
from shoal.protocol import errors
from shoal.protocol.errors import BY_CODE, Fault, ShoalError, from_fault

SNIPPET_BYTES = 200

# For answers that carry no code: those of a proxy or a limit in front of the server.
BY_STATUS: Mapping[int, type[ShoalError]] = {
    400: errors.InvalidInput,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: errors.MethodNotAllowed,
    408: errors.RequestTimeout,
    409: errors.Conflict,
    413: errors.PayloadTooLarge,
    415: errors.UnsupportedMediaType,
    429: errors.RateLimited,
    503: errors.ResourceExhausted,
    504: errors.DeadlineExceeded,
}


def accepted(outcome: Outcome, terms: Terms) -> bytes:
    """The body of a good answer. Raises what the outcome stands for if it is none."""
    if isinstance(outcome, ConnectionFailed):
        raise no_answer(outcome, terms)
    if outcome.status in (200, 201):
        return outcome.body
    if outcome.status < 400:
        place = f" to {outcome.headers['location']}" if "location" in outcome.headers else ""
        raise BadAnswer(
            f"{terms.base_url} answered {outcome.status}{place}; a Shoal server does not: check base_url",
            status=outcome.status,
        )
    raise refusal(outcome, terms)


def refusal(answer: Received, terms: Terms) -> ShoalError:
    """The exception that a 4xx or 5xx answer stands for. `detail` has its status and facts."""
    code, message, detail = _fields(answer)
    code = answer.headers.get("x-sie-error-code") or code
    detail["status"] = answer.status
    if request_id := answer.headers.get("x-request-id"):
        detail["request_id"] = request_id
    message = message or f"{terms.base_url} answered {answer.status}: {snippet(answer.body) or 'an empty body'}"
    if not code:
        return BY_STATUS.get(answer.status, errors.InternalError)(message, **detail)
    return exception(code, message, detail)


def exception(code: str, message: str, detail: Mapping[str, Any]) -> ShoalError:
    """A peer's error. A code that we do not know makes an InternalError that keeps it in `detail`."""
    facts = {key: value for key, value in detail.items() if key not in ("self", "message")}
    if code not in BY_CODE:
        facts["code"] = code
    return from_fault(Fault(code, message or code, facts))


def snippet(body: bytes) -> str:
    """The beginning of a body that cannot be read, for a message."""
    return " ".join(body[:SNIPPET_BYTES].decode(errors="replace").split())


def _fields(answer: Received) -> tuple[str, str, dict[str, Any]]:
    """Code, message and the other facts of an error body: msgpack or JSON, under `detail` or `error`."""
    is_msgpack = "msgpack" in answer.headers.get("content-type", "")
    try:
        body = (msgspec.msgpack.decode if is_msgpack else msgspec.json.decode)(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "", "", {}
    inner = body.get("detail") or body.get("error") if isinstance(body, dict) else None
    if isinstance(inner, str):
        return "", inner, {}
    if not isinstance(inner, dict):
        return "", "", {}
    facts = {str(key): value for key, value in inner.items() if key not in ("code", "message", "detail")}
    nested = inner.get("detail")
    if isinstance(nested, dict):
        facts |= {str(key): value for key, value in nested.items()}
    return str(inner.get("code") or ""), str(inner.get("message") or ""), facts


def no_answer(failure: ConnectionFailed, terms: Terms) -> ShoalError:
    """The exception that a failed connection stands for."""
    url, why = terms.base_url, failure.reason
    if failure.stage == "timeout":
        return errors.DeadlineExceeded(f"no answer from {url} within {terms.timeout_s:g} s (timeout_s)", url=url)
    if failure.stage == "lost":
        return ServerUnreachable(f"the connection to {url} broke before the answer came ({why})", url=url)
    return ServerUnreachable(
        f"no server answers at {url} ({why}); start one with `shoal serve`, or check the URL", url=url
    )
