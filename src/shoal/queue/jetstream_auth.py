"""How a client makes itself known to a queue server: user and password, token, credentials file, TLS."""

import base64
import re
import ssl
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from shoal.protocol.errors import InvalidInput
from shoal.version import __version__

_SECTION = re.compile(r"-+BEGIN [A-Z ]+-+\s+(\S+)\s+-+END [A-Z ]+-+")


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """All optional; what the URL says (`nats://user:password@host`, `tls://`) comes on top."""

    user: str = ""
    password: str = ""
    token: str = ""
    creds: Path | None = None
    """A file as `nsc` writes it: a JWT and the seed that signs for it."""
    tls: bool = False
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None

    @property
    def wants_tls(self) -> bool:
        return self.tls or self.tls_ca is not None or self.tls_cert is not None

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.tls_ca) if self.tls_ca else None)
        if self.tls_cert is not None:
            context.load_cert_chain(self.tls_cert, self.tls_key)
        return context


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int
    user: str = ""
    password: str = ""
    tls: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def addresses(url: str) -> list[Address]:
    """One or several servers of one cluster, separated by commas. Raises InvalidInput."""
    found = []
    for part in url.split(","):
        split = urlsplit(part.strip() if "://" in part else f"nats://{part.strip()}")
        if split.scheme not in ("nats", "tls") or not split.hostname:
            raise InvalidInput(f"{part.strip()!r} is no address of a queue server, such as nats://host:4222")
        user, password = unquote(split.username or ""), unquote(split.password or "")
        found.append(Address(split.hostname, split.port or 4222, user, password, split.scheme == "tls"))
    return found


def connect_line(login: Login, address: Address, nonce: str, name: str) -> bytes:
    """The CONNECT that opens a session. Raises InvalidInput when the credentials cannot be used."""
    options: dict[str, object] = {
        "verbose": False, "pedantic": False, "lang": "python", "version": __version__, "protocol": 1,
        "headers": True, "no_responders": True, "echo": True, "name": name,
    }  # fmt: skip
    user, password = address.user or login.user, address.password or login.password
    if login.creds is not None:
        jwt, seed = _credentials(login.creds)
        options |= {"jwt": jwt, "sig": _signature(seed, nonce)}
    elif user and not password and not login.password and address.user:
        options["auth_token"] = user
    elif user:
        options |= {"user": user, "pass": password}
    elif login.token:
        options["auth_token"] = login.token
    return b"CONNECT " + msgspec.json.encode(options) + b"\r\n"


def _credentials(path: Path) -> tuple[str, str]:
    try:
        found = _SECTION.findall(path.read_text())
    except OSError as error:
        raise InvalidInput(f"the credentials {path} cannot be read: {error.strerror}") from error
    if len(found) < 2:
        raise InvalidInput(f"{path} is no credentials file: it should hold a JWT and a seed")
    return found[0], found[1]


def _signature(seed: str, nonce: str) -> str:
    try:
        import nkeys  # an extra of nats-py
    except ImportError as error:
        raise InvalidInput("a credentials file needs `pip install nkeys`") from error
    pair = nkeys.from_seed(seed.encode())
    return base64.urlsafe_b64encode(pair.sign(nonce.encode())).decode().rstrip("=")
