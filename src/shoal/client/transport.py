"""What both clients tell httpx: where the server is, who asks, which proxies count, and what a failure means.

The only file besides the two clients that knows httpx.
"""

import ipaddress
import re
from typing import TypedDict

import httpx

from shoal.client.flow import ConnectionFailed, Send
from shoal.protocol.envelope import Priority
from shoal.protocol.errors import InvalidInput
from shoal.version import __version__


class Settings(TypedDict):
    """Keyword arguments of `httpx.Client` and `httpx.AsyncClient` alike."""

    base_url: str
    headers: dict[str, str]
    limits: httpx.Limits


def settings(base_url: str, api_key: str | None, priority: Priority) -> Settings:
    """Raises InvalidInput for a URL or key that no request could be made with."""
    url = _checked(base_url)
    headers = {"user-agent": f"shoal/{__version__}"}
    if api_key is not None:
        key = api_key.strip()
        if not (key.isascii() and key.isprintable()):
            raise InvalidInput("api_key holds characters that no header can carry")
        headers["authorization"] = f"Bearer {key}"
    if priority != "interactive":
        headers["x-shoal-priority"] = priority
    # As many connections as there are callers; the server has limits of its own and says so.
    return Settings(base_url=str(url), headers=headers, limits=httpx.Limits(max_connections=None))


def direct_hosts(base_url: str) -> dict[str, None]:
    """What httpx must not send through a proxy of the environment: a server on this very machine."""
    host = httpx.URL(base_url).host
    pattern = f"all://[{host}]" if ":" in host else f"all://{host}"
    return {pattern: None} if _is_loopback(host) else {}


def timeouts(send: Send) -> httpx.Timeout:
    return httpx.Timeout(send.timeout_s, connect=send.connect_timeout_s)


def failed(error: httpx.RequestError) -> ConnectionFailed:
    """Before anything was sent, after, or out of time: from the kind of httpx's error."""
    reason = reason_of(error)
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError):
        return ConnectionFailed("connect", reason)
    if isinstance(error, httpx.TimeoutException):
        return ConnectionFailed("timeout", reason)
    return ConnectionFailed("lost", reason)


def reason_of(error: httpx.HTTPError) -> str:
    """In words, without the number that the system has for it."""
    return re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__


def _checked(base_url: str) -> httpx.URL:
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as e:
        raise InvalidInput(f"base_url {base_url!r} is no URL: {e}") from e
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidInput(f"base_url {base_url!r} does not begin with http:// or https:// and a host")
    return url


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
