"""Options that several verbs take, each with its words, and what is made of their values."""

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from shoal.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from shoal.queue.jetstream_auth import Login

MIB = 1024 * 1024
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}

Host = Annotated[str, typer.Option(help="Address to listen on; beyond loopback a key is required.")]
Port = Annotated[int, typer.Option(min=0, max=65535)]
Pin = Annotated[list[str] | None, typer.Option(help="Load this model at start and keep it.")]
Memory = Annotated[str, typer.Option(help="What all models together may take, e.g. 8GB.")]
AdapterMemory = Annotated[
    str, typer.Option(help="What the LoRA adapters of one model may take in one process, e.g. 500MB.")
]
Home = Annotated[Path | None, typer.Option(help="Where models are kept; else $SHOAL_HOME.")]
KeyFile = Annotated[Path | None, typer.Option(help="sha256 digests of API keys, one a line.")]
Timeout = Annotated[float, typer.Option(min=1e-3, help="Seconds a request may take by default.")]
MaxTimeout = Annotated[float, typer.Option(min=1e-3, help="Most seconds a client may ask for.")]
MaxBodyBytes = Annotated[int, typer.Option(min=1)]
BodyTimeout = Annotated[float, typer.Option(min=1e-3, help="Seconds a client may take to send.")]
HeadTimeout = Annotated[float, typer.Option(min=1e-3, help="Seconds a request's head may take.")]
WriteTimeout = Annotated[float, typer.Option(min=1e-3, help="Seconds an answer may go unread.")]
MaxHeadBytes = Annotated[int, typer.Option(min=1, help="Bytes of a request's head.")]
MaxInFlight = Annotated[int, typer.Option(min=1, help="Requests at once.")]
MaxInFlightBytes = Annotated[int, typer.Option(min=1, help="Bytes of all bodies at once.")]
MaxUnreadBytes = Annotated[int, typer.Option(min=1, help="Bytes of answers that nobody reads, all together.")]
MaxConnections = Annotated[int, typer.Option(min=1)]
MaxArtifactBytes = Annotated[int, typer.Option(min=1, help="Bytes of one pushed model.")]
MaxArtifactFiles = Annotated[int, typer.Option(min=1, help="Files of one pushed model.")]
MaxUnfinishedBytes = Annotated[int, typer.Option(min=1, help="Bytes sent that are no version of any model.")]
MaxUnfinishedBytesPerKey = Annotated[int, typer.Option(min=1, help="The same, of those sent with one key.")]
ProveWithin = Annotated[
    float, typer.Option(min=1, help="Seconds a pushed model may take to be looked at, loaded and tried.")
]
MaxItems = Annotated[int, typer.Option(min=1, help="Items in one request.")]
QueueJobs = Annotated[int, typer.Option(min=1, help="Jobs that may wait for one model.")]
QueueBytes = Annotated[int, typer.Option(min=1, help="Bytes that may wait for one model.")]
PoolsJobs = Annotated[
    int | None, typer.Option(min=1, help="Jobs that may wait for one model, at all gateways; 10000 if none says.")
]
PoolsBytes = Annotated[
    int | None, typer.Option(min=1, help="Bytes that may wait in the pool, at all gateways; 512 MiB if none says.")
]
MaxWait = Annotated[float, typer.Option(min=1e-3, help="Seconds an interactive request may have to wait.")]
Devices = Annotated[
    str, typer.Option(help="Kind and number of devices, each with its own replicas: cpu, cpu:2, cuda, virtual:4.")
]
LatencyMs = Annotated[
    float, typer.Option(min=1, help="A batch is to run in half of this, where nodes share the work.")
]
LogFormat = Annotated[Literal["text", "json"], typer.Option()]
AccessLog = Annotated[bool, typer.Option("--access-log", help="Log a line for each request.")]
Otlp = Annotated[
    str, typer.Option(help="Send traces to this collector; env: as $OTEL_EXPORTER_OTLP_ENDPOINT says.")
]

Nats = Annotated[
    str,
    typer.Option(envvar="SHOAL_NATS", help="The queue server, nats://host:4222 or tls://…"),
]
Pool = Annotated[str, typer.Option(help="The queue that gateways and nodes of this name share.")]
NatsUser = Annotated[str, typer.Option(help="User at the queue server; its password is $SHOAL_NATS_PASSWORD.")]
NatsCreds = Annotated[Path | None, typer.Option(help="A credentials file for the queue server.")]
NatsCa = Annotated[Path | None, typer.Option(help="Who signed the queue server's certificate; asks for TLS.")]
NatsCert = Annotated[Path | None, typer.Option(help="Our own certificate for the queue server.")]
NatsKey = Annotated[Path | None, typer.Option(help="The key of that certificate.")]
DrainWithin = Annotated[float, typer.Option(min=0, help="Seconds to finish what was begun, when told to end.")]


def login(user: str, creds: Path | None, ca: Path | None, cert: Path | None, key: Path | None) -> "Login":
    """Secrets come from the environment: SHOAL_NATS_PASSWORD, SHOAL_NATS_TOKEN."""
    from shoal.queue.jetstream_auth import Login

    password, token = os.environ.get("SHOAL_NATS_PASSWORD", ""), os.environ.get("SHOAL_NATS_TOKEN", "")
    return Login(user=user, password=password, token=token, creds=creds, tls_ca=ca, tls_cert=cert, tls_key=key)


def adapter_bytes(said: str, memory_bytes: int) -> int:
    """A quarter of what all models may take, but at most 1 GB, where nothing is said."""
    return parse_size(said) if said else min(1_000_000_000, memory_bytes // 4)


def parse_size(text: str) -> int:
    """Bytes from `8GB`, `500M`, `1.5g` or a plain number (decimal units)."""
    number = text.strip().lower().removesuffix("b")
    unit = number[-1:] if number[-1:] in _UNITS else ""
    try:
        size = int(float(number.removesuffix(unit)) * _UNITS[unit])
    except (ValueError, OverflowError):
        size = 0
    if size < 1_000_000:
        raise InvalidInput(f"{text!r} is no size of at least 1MB; write for example 8GB or 500MB")
    return size


def read_keys(key_file: Path | None) -> frozenset[bytes]:
    """Digests of the keys in SHOAL_API_KEY (plain, comma between) and in the file (sha256 hex, one a line)."""
    plain = [key.strip() for key in os.environ.get("SHOAL_API_KEY", "").split(",") if key.strip()]
    digests = {hashlib.sha256(key.encode()).digest() for key in plain}
    for number, line in enumerate(key_file.read_text().splitlines() if key_file else [], 1):
        if line.strip():
            try:
                digest = bytes.fromhex(line.strip())
            except ValueError:
                digest = b""
            if len(digest) != 32:
                raise InvalidInput(f"{key_file}:{number}: not a sha256 digest in hex")
            digests.add(digest)
    if key_file is not None and not digests:
        raise InvalidInput(f"{key_file} holds no key; without one everybody would be let in")
    return frozenset(digests)
