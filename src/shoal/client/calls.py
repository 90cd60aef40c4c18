"""What a call on a client is: flows to drive, and what joins their results. Also the calls that only look.

Nothing here does I/O. A call's flows are independent of each other and may run in any order.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from shoal.client import answers
from shoal.client.flow import Flow, Received, Request, Terms, exchange, once
from shoal.client.refusals import accepted
from shoal.observe import traces
from shoal.protocol.errors import EmptyInput, InferenceError, InputTooLong, ShoalError

T = TypeVar("T")

Read = Callable[[bytes, range], list[T | ShoalError]]
"""From an answer's body and the indices of the inputs it is for: a result or an error for each, in order."""

READY_TIMEOUT_S = 5.0
OF_ITEMS = (EmptyInput, InputTooLong, InferenceError)


class Call(msgspec.Struct, Generic[T], frozen=True):
    flows: Sequence[Flow[Any]]
    join: Callable[[list[Any]], T]
    """Given the flows' results in their order."""


def only(flow: Flow[T]) -> Call[T]:
    return Call([flow], lambda results: results[0])


def ask(terms: Terms, request: Request, read: Callable[[bytes], T]) -> Flow[T]:
    """Send `request` and read its answer. Raises what a refusal or a failure stands for."""
    outcome = yield from exchange(request, terms)
    return read(accepted(outcome, terms))


def ask_part(
    terms: Terms, verb: str, model: str, fields: dict[str, Any], part: slice, read: Read[T]
) -> Flow[list[T | ShoalError]]:
    """Ask about `part` of a call's inputs, as a part of what its caller traces; one result or error for each.

    A server that could answer none of them refuses the request with the first one's error; here that is
    still an error of its items, so that the other parts of the call keep their results. (Where the request
    itself was at fault, the refusal says which `param`.)
    """
    # Found now: the flow may run on another thread, which is part of no trace.
    return _ask_part(terms, verb, model, fields, part, read, traces.current())


def _ask_part(
    terms: Terms, verb: str, model: str, fields: dict[str, Any], part: slice, read: Read[T], trace: str
) -> Flow[list[T | ShoalError]]:
    headers = {"content-type": "application/msgpack", "accept": "application/msgpack"}
    if trace:
        headers["traceparent"] = trace
    body = msgspec.msgpack.encode({key: value for key, value in fields.items() if value is not None})
    request = Request("POST", f"/v1/{verb}/{quoted(model)}", headers, body)
    inputs = range(part.start, part.stop)
    try:
        return (yield from ask(terms, request, lambda answer: read(answer, inputs)))
    except ShoalError as e:
        if isinstance(e, OF_ITEMS) and "param" not in e.detail:
            return [e] * len(inputs)
        if part.start:
            e.add_note(
                f"This was asked about inputs {part.start} to {part.stop - 1}; indices count from the first."
            )
        raise


def models(terms: Terms, *, catalog: bool) -> Call[list[dict[str, Any]]]:
    path = "/v1/models?catalog=1" if catalog else "/v1/models"
    return only(ask(terms, _get(path), answers.models))


def model(terms: Terms, name: str) -> Call[dict[str, Any]]:
    return only(ask(terms, _get(f"/v1/models/{quoted(name)}"), answers.description))


def ready(terms: Terms) -> Call[bool]:
    def look() -> Flow[bool]:
        outcome = yield from once(_get("/readyz"), min(READY_TIMEOUT_S, terms.timeout_s))
        return isinstance(outcome, Received) and outcome.status == 200

    return only(look())


def quoted(model: str) -> str:
    """A model's name as it stands in a path: slashes, colons and at signs stay."""
    return quote(model, safe="/:@", errors="replace")


def _get(path: str) -> Request:
    return Request("GET", path, {"accept": "application/json"})
