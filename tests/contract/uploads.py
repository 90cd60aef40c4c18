"""Models to push, and how a client sends them."""

import asyncio
import hashlib
import secrets
import sys

from shoal.catalog import Card, Folder
from shoal.catalog.chunks import CHUNK_BYTES
from shoal.catalog.ledger import NameState, Pushed
from shoal.catalog.manifests import File, Manifest
from shoal.catalog.objects import Objects
from shoal.catalog.registry import Registry
from shoal.protocol.errors import Conflict
from shoal.protocol.facts import Facts

NAME = "team/contracts"
FACTS = Facts(tasks=("encode",), family="bert", files="safetensors", max_tokens=128)


def silent(what, done, total):
    pass


def weights(size: int = 1000, seed: bytes = b"") -> bytes:
    """What begins like safetensors. The same for the same seed."""
    body = hashlib.shake_256(seed or secrets.token_bytes(8)).digest(min(size - 10, 100_000))
    return (2).to_bytes(8, "little") + b"{}" + body + bytes(size - 10 - len(body))


def model(weighing: bytes = b"", **files: bytes) -> tuple[Manifest, dict[str, bytes]]:
    """A manifest, and its files' contents by sha256."""
    contents = {"config.json": b"{}", "model.safetensors": weighing or weights(), "README.md": b""}
    contents |= {f"{name}.json": data for name, data in files.items()}
    listed = {path: File(path, hashlib.sha256(data).hexdigest(), len(data)) for path, data in contents.items()}
    return Manifest(tuple(listed.values())), {listed[path].sha256: data for path, data in contents.items()}


def file_in(manifest: Manifest, path: str = "model.safetensors") -> File:
    return next(file for file in manifest.files if file.path == path)


async def send(registry: Registry, file: File, data: bytes, chunk: int = CHUNK_BYTES, sender: str = "") -> None:
    """As a client does: it goes on where it is told to."""
    offset = 0
    while offset < file.size_bytes:
        try:
            offset = await registry.receive(file, offset, data[offset : offset + chunk], sender)
        except Conflict as conflict:
            offset = conflict.detail["offset"]


async def upload(registry: Registry, manifest: Manifest, contents: dict[str, bytes]) -> str:
    by_hash = {file.sha256: file for file in manifest.files}
    for sha256 in await registry.missing(manifest):
        await send(registry, by_hash[sha256], contents[sha256])
    return await registry.commit(manifest)


def pushed(digest: str, name: str = NAME) -> Pushed:
    card = Card(name=name, source=Folder(path="x"))
    return Pushed(at=1.0, who="key-1", digest=digest, card=card, facts=FACTS, size_bytes=10)


async def push(registry: Registry, name: str = NAME, weighing: bytes = b"", since: int | None = None) -> NameState:
    digest = await upload(registry, *model(weighing))
    return await registry.append(name, pushed(digest, name), since=since)


async def keys(objects: Objects, prefix: str = "") -> set[str]:
    return {found.key for found in await objects.list(prefix)}


async def begin(code: str, *arguments: str) -> asyncio.subprocess.Process:
    """A Python process that runs `code`."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *arguments, stdout=asyncio.subprocess.PIPE
    )
