"""`shoal serve`: the whole road in one process, gateway and node joined by the in-process queue."""

import hashlib
import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from shoal.protocol.errors import InvalidInput

MIB = 1024 * 1024
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def command(app: typer.Typer) -> None:
    @app.command()
    def serve(
        host: Annotated[
            str, typer.Option(help="Address to listen on; beyond loopback a key is required.")
        ] = "127.0.0.1",
        port: Annotated[int, typer.Option(min=0, max=65535)] = 8080,
        pin: Annotated[list[str] | None, typer.Option(help="Load this model at start and keep it.")] = None,
        memory: Annotated[str, typer.Option(help="What all models together may take, e.g. 8GB.")] = "",
        home: Annotated[Path | None, typer.Option(help="Where models are kept; else $SHOAL_HOME.")] = None,
        key_file: Annotated[Path | None, typer.Option(help="sha256 digests of API keys, one a line.")] = None,
        timeout: Annotated[float, typer.Option(min=1e-3, help="Seconds a request may take by default.")] = 120.0,
        max_timeout: Annotated[float, typer.Option(min=1e-3, help="Most seconds a client may ask for.")] = 600.0,
        max_body_bytes: Annotated[int, typer.Option(min=1)] = 32 * MIB,
        body_timeout: Annotated[float, typer.Option(min=1e-3, help="Seconds a client may take to send.")] = 30.0,
        head_timeout: Annotated[float, typer.Option(min=1e-3, help="Seconds a request's head may take.")] = 30.0,
        write_timeout: Annotated[float, typer.Option(min=1e-3, help="Seconds an answer may go unread.")] = 30.0,
        max_head_bytes: Annotated[int, typer.Option(min=1, help="Bytes of a request's head.")] = 64 * 1024,
        max_in_flight: Annotated[int, typer.Option(min=1, help="Requests at once.")] = 4096,
        max_in_flight_bytes: Annotated[int, typer.Option(min=1, help="Bytes of all bodies at once.")] = 512
        * 1024
        * 1024,
        max_connections: Annotated[int, typer.Option(min=1)] = 8192,
        max_items: Annotated[int, typer.Option(min=1, help="Items in one request.")] = 10_000,
        queue_jobs: Annotated[int, typer.Option(min=1, help="Jobs that may wait for one model.")] = 10_000,
        queue_bytes: Annotated[int, typer.Option(min=1, help="Bytes that may wait for one model.")] = 512
        * 1024
        * 1024,
        max_wait: Annotated[
            float, typer.Option(min=1e-3, help="Seconds an interactive request may have to wait.")
        ] = 10.0,
        log_format: Annotated[Literal["text", "json"], typer.Option()] = "text",
    ) -> None:
        """Serve the models that are here, until Ctrl-C, which finishes what was accepted."""
        from shoal.cli import _road
        from shoal.gateway.settings import GatewaySettings
        from shoal.node import devices
        from shoal.node.settings import Settings
        from shoal.queue import Limits

        keys = read_keys(key_file)
        if host not in LOOPBACK and not keys:
            raise InvalidInput(
                f"listening on {host} lets others in, so a key is required: set SHOAL_API_KEY or --key-file"
            )
        road = _road.Road(
            host=host, port=port, home=home, max_items=max_items, log_format=log_format,
            gateway=GatewaySettings(
                max_body_bytes=max_body_bytes, body_timeout_s=body_timeout, head_timeout_s=head_timeout,
                write_timeout_s=write_timeout, max_head_bytes=max_head_bytes, max_in_flight=max_in_flight,
                max_in_flight_bytes=max_in_flight_bytes, max_connections=max_connections,
                timeout_s=timeout, max_timeout_s=max_timeout, keys=keys,
            ),
            node=Settings(
                memory_bytes=parse_size(memory) if memory else int(devices.memory_bytes() * 0.7),
                pinned=frozenset(pin or ()),
            ),
            queue=Limits(jobs_per_line=queue_jobs, bytes_per_line=queue_bytes, max_wait_s=max_wait),
        )  # fmt: skip
        _road.run(road)


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
