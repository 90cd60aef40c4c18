"""Whether a request is let in, and its envelope. Pure: headers and limits in, an envelope or an error out."""

from collections.abc import Mapping, Sequence
from typing import get_args

from shoal.catalog import Model
from shoal.gateway.routing import Target
from shoal.gateway.settings import GatewaySettings
from shoal.protocol.envelope import Envelope, Priority
from shoal.protocol.errors import InvalidInput, PayloadTooLarge, over_limit

Headers = Mapping[bytes, bytes]


def headers_of(pairs: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """By lower-case name; of a repeated header the last counts, but of several keys none does: which of them a
    proxy on the way has looked at nobody knows."""
    headers = dict(pairs)
    if len(headers) < len(pairs) and sum(name == b"authorization" for name, _ in pairs) > 1:
        del headers[b"authorization"]
    return headers


def declared_size(headers: Headers, settings: GatewaySettings) -> int:
    """The content length, -1 if none is declared. Raises PayloadTooLarge before a byte is read."""
    declared = headers.get(b"content-length", b"")
    if not declared.isdigit():
        return -1
    size = int(declared)
    check_size(size, settings)
    return size


def check_size(size: int, settings: GatewaySettings) -> None:
    if size > settings.max_body_bytes:
        raise over_limit(
            PayloadTooLarge, "the body", seen=size, limit=settings.max_body_bytes,
            setting="--max-body-bytes", unit="bytes",
        )  # fmt: skip


def timeout_of(headers: Headers, settings: GatewaySettings) -> float:
    """Seconds the client will wait. Raises InvalidInput for a value that is no sane number."""
    raw = headers.get(b"x-shoal-timeout-ms")
    if raw is None:
        return settings.timeout_s
    if not raw.isdigit() or len(raw) > 12 or int(raw) == 0:
        raise InvalidInput(f"X-Shoal-Timeout-Ms must be a whole number of milliseconds above 0, not {raw[:40]!r}")
    seconds = int(raw) / 1e3
    if seconds > settings.max_timeout_s:
        raise over_limit(
            InvalidInput, "X-Shoal-Timeout-Ms", seen=seconds, limit=settings.max_timeout_s,
            setting="--max-timeout", unit="s",
        )  # fmt: skip
    return seconds


def priority_of(headers: Headers) -> Priority:
    if b"x-shoal-priority" not in headers:
        return "interactive"
    raw = headers[b"x-shoal-priority"].decode("latin-1")
    for known in get_args(Priority):
        if raw == known:
            return known  # type: ignore[no-any-return]
    raise InvalidInput(f"X-Shoal-Priority must be interactive or batch, not {raw[:40]!r}")


def envelope(
    target: Target,
    model: Model,
    headers: Headers,
    size: int,
    settings: GatewaySettings,
    now: float,
    request_id: str,
    tenant: str = "",
) -> Envelope:
    """What the road needs to know of a request. `tenant` is the id of the key it came with."""
    return Envelope(
        id=request_id,
        task=target.route.task,
        model=model.name,
        asked=model.called and model.shown,
        line=model.line,
        dialect=target.dialect.name,
        route=target.route.name,
        received=now,
        deadline=now + timeout_of(headers, settings),
        content_type=headers.get(b"content-type", b"").decode("latin-1"),
        accept=headers.get(b"accept", b"").decode("latin-1"),
        size_bytes=size,
        priority=priority_of(headers),
        tenant=tenant,
        traceparent=headers.get(b"traceparent", b"").decode("latin-1")[:128],
    )
