"""One request before any load: it makes the model load, and says in words what is wrong where something is."""

import http.client
import urllib.parse
from typing import Any

import msgspec

from shoal.lab.run import Request, Target
from shoal.protocol.errors import InvalidInput, ModelNotFound, NotFound, ShoalError, Unauthorized

PATIENCE_S = 600.0  # a model may have to be loaded first


class Refused(ShoalError):
    """The target answers, but not this."""

    code, status = "BAD_ANSWER", 502


def target_of(url: str, key: str | None) -> tuple[Target, str]:
    """Who is at `url`, and the path before every route: what stands in the URL, without a /v1 at its end.

    Raises InvalidInput for what is no URL of a server.
    """
    parts = urllib.parse.urlsplit(url if "//" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError as e:
        raise InvalidInput(f"{url!r} has no port that can be") from e
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii():
        raise InvalidInput(f"{url!r} does not begin with http:// or https:// and a host")
    if key is not None and not (key.isascii() and key.isprintable()):
        raise InvalidInput("the key holds characters that no header can carry")
    tls = parts.scheme == "https"
    headers = (("authorization", f"Bearer {key.strip()}"),) if key else ()
    target = Target(parts.hostname, port or (443 if tls else 80), headers, tls)
    return target, parts.path.rstrip("/").removesuffix("/v1")


def probe(target: Target, request: Request, model: str) -> None:
    """Raises ShoalError, in words for a person, where `request` gets no good answer."""
    try:
        status, body = _ask(target, "POST", request.path, request, PATIENCE_S)
    except TimeoutError as e:
        raise Refused(f"no answer to the first request within {PATIENCE_S:g} s") from e
    except (OSError, http.client.HTTPException) as e:
        where = f"{target.host}:{target.port}"
        if isinstance(e, ConnectionRefusedError):
            raise NotFound(f"nothing listens at {where}; `shoal serve` starts a server there") from e
        raise NotFound(f"no answer from {where}: {str(e) or type(e).__name__}") from e
    if 200 <= status < 300:
        return
    said = body[:600].decode("utf-8", "replace")
    if status in (401, 403):
        what = "refuses the key" if dict(target.headers).get("authorization") else "wants a key"
        raise Unauthorized(f"the server {what} ({status}); give one with --api-key or SHOAL_API_KEY")
    if status == 404:
        raise ModelNotFound(f"the server does not know {model!r} or the route {request.path}; it says: {said}")
    raise Refused(f"the server answers {status} to the first request: {said}")


def describe(target: Target, prefix: str, model: str) -> dict[str, Any]:
    """What the target says of the model and of itself, as far as it says anything. Never raises."""
    found: dict[str, Any] = {}
    try:
        status, body = _ask(target, "GET", f"{prefix}/v1/models", None, 10.0)
        listing = msgspec.json.decode(body, type=dict[str, Any]) if status == 200 else {}
    except (OSError, http.client.HTTPException, msgspec.MsgspecError):
        return found
    for entry in listing.get("data") or ():
        if isinstance(entry, dict) and entry.get("id") == model:
            found = entry
    return found


def _ask(target: Target, method: str, path: str, request: Request | None, timeout_s: float) -> tuple[int, bytes]:
    kind = http.client.HTTPSConnection if target.tls else http.client.HTTPConnection
    connection = kind(target.host, target.port, timeout=timeout_s)
    headers = dict(target.headers)
    body = None
    if request is not None:
        headers |= {"content-type": request.content_type, **dict(request.headers)}
        body = request.body
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
