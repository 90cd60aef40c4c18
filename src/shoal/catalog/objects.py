"""The object store, where models that were pushed and their ledger are kept: a folder, or a bucket of S3, Google
Cloud Storage or Azure. Keys are relative paths with `/`; a value is written whole or not at all.

Knows bytes by key, nothing of what they mean. The only file that speaks to buckets, through obstore, which the
extra `cluster` brings.
"""

import asyncio
import contextlib
import errno
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from shoal.protocol.errors import InvalidInput, ResourceExhausted, StorageUnavailable

T = TypeVar("T")
PART_BYTES = 8 * 1024 * 1024
_SCHEMES = ("s3://", "gs://", "az://")
_RETRIES, _RETRIED_WITHIN = 5, timedelta(seconds=30)
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")
FULL = (errno.ENOSPC, errno.EDQUOT)
IDENTITY = "identity"
"""The key of what tells one store from another (identity.py)."""


class NotThere(KeyError):
    """Nothing has that key."""


class Found(msgspec.Struct, frozen=True):
    """`modified` in unix seconds; `etag` differs after every write of that key."""

    key: str
    size_bytes: int
    modified: float
    etag: str = ""


class Objects(ABC):
    """What the store refuses, or cannot do just now, is raised as StorageUnavailable or ResourceExhausted."""

    @classmethod
    def open(cls, url: str) -> "Objects":
        """A folder by its path or file:// URL, or s3:// gs:// az:// and a bucket, maybe with a prefix; credentials
        are found as obstore finds them, in the environment. Nothing is asked of it yet. Raises InvalidInput."""
        from shoal.catalog.objects_folder import FolderObjects

        scheme, is_url, rest = url.partition("://")
        if is_url and scheme != "file":
            return BucketObjects(url)
        path = Path(rest if is_url else url).expanduser()
        if not url or (is_url and not path.is_absolute()):
            raise InvalidInput(f"{url!r} is no folder, nor a bucket ({', '.join(_SCHEMES)})", setting="--objects")
        return FolderObjects(path.absolute())

    @abstractmethod
    async def get(self, key: str) -> bytes:
        """Raises NotThere."""

    @abstractmethod
    async def size_of(self, key: str) -> int | None:
        """In bytes; None where it is not there."""

    @abstractmethod
    async def put(self, key: str, data: bytes) -> None:
        """Replace what has the key, if anything has."""

    @abstractmethod
    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> None:
        """Put what `parts` gives, one after the other. Where it raises, so does this, and nothing is written."""

    @abstractmethod
    async def create(self, key: str, data: bytes) -> bool:
        """Whether it was put: False where something has the key already. Of many at once exactly one succeeds."""

    @abstractmethod
    async def list(self, prefix: str) -> list[Found]:
        """All below the folder `prefix`, which ends with a slash, however deep; sorted by key."""

    async def keys(self, prefix: str) -> Sequence[str]:
        """Those that `list` has, in any order, where nothing else of them is asked for."""
        return [found.key for found in await self.list(prefix)]

    @abstractmethod
    async def delete(self, key: str) -> None:
        """Also where it is not there."""

    @abstractmethod
    def parts(self, key: str) -> AsyncIterator[bytes]:
        """What it holds, in pieces of at most PART_BYTES. Raises NotThere."""

    async def fetch(self, key: str, into: Path) -> str:
        """Stream it to a new file, which stays when this fails; the sha256 of what came. Raises NotThere, and
        ResourceExhausted where this disk is full."""
        digest = hashlib.sha256()
        try:
            await in_thread(into.touch, 0o666, False)
            async for part in self.parts(key):
                await in_thread(digest.update, part)
                await in_thread(append, into, part)
        except OSError as error:
            if error.errno not in FULL:
                raise
            full = f"the disk of {into.parent} is full; make room"
            raise ResourceExhausted(full, setting="SHOAL_HOME") from error
        return digest.hexdigest()

    async def sweep(self, older_than_s: float) -> int:
        """Remove what writers that died have left behind and no key names; how many. A bucket leaves nothing that
        we see: its rule for unfinished multipart uploads removes those."""
        return 0


async def in_thread(work: Callable[..., T], *args: Any) -> T:
    """`work` in a thread. Whoever is cancelled meanwhile waits for its end: nothing is written afterwards."""
    doing = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.gather(doing, return_exceptions=True)
        raise


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


class BucketObjects(Objects):
    """Which requests are tried again, and how long, is obstore's affair, within what is said here."""

    def __init__(self, url: str) -> None:
        """Raises InvalidInput for a URL of another kind, and where obstore is not installed."""
        self.url = url
        if not url.startswith(_SCHEMES):
            raise InvalidInput(
                f"{url} names no object store that is known; there are folders, {', '.join(_SCHEMES)}",
                setting="--objects",
            )
        try:
            from obstore.exceptions import AlreadyExistsError, BaseError
            from obstore.store import from_url
        except ImportError as error:
            raise InvalidInput(f"{url} needs obstore: `pip install 'shoal[cluster]'` brings it") from error
        self._exists, self._failed = AlreadyExistsError, BaseError
        try:
            self._store: Any = from_url(
                url, retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRIED_WITHIN}
            )
        except (BaseError, ValueError) as error:
            raise InvalidInput(f"{url}: {_first_line(error)}", setting="--objects") from error

    async def get(self, key: str) -> bytes:
        with self._answering(key):
            found = await self._store.get_async(key)
            return bytes(await found.bytes_async())

    async def size_of(self, key: str) -> int | None:
        try:
            with self._answering(key):
                return int((await self._store.head_async(key))["size"])
        except NotThere:
            return None

    async def put(self, key: str, data: bytes) -> None:
        with self._answering(key):
            await self._store.put_async(key, data, use_multipart=False)

    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> None:
        with self._answering(key):
            await self._store.put_async(key, parts, chunk_size=PART_BYTES, max_concurrency=2)

    async def create(self, key: str, data: bytes) -> bool:
        with self._answering(key):
            try:
                await self._store.put_async(key, data, mode="create", use_multipart=False)
            except self._exists:
                return False
            return True

    async def list(self, prefix: str) -> list[Found]:
        found: list[Found] = []
        with self._answering(prefix):
            async for batch in self._store.list(prefix.removesuffix("/") or None):
                for entry in batch:
                    modified = entry["last_modified"].timestamp()
                    found.append(Found(entry["path"], entry["size"], modified, entry["e_tag"] or ""))
        return sorted(found, key=lambda one: one.key)

    async def delete(self, key: str) -> None:
        with contextlib.suppress(NotThere), self._answering(key):
            await self._store.delete_async(key)

    async def parts(self, key: str) -> AsyncIterator[bytes]:
        """By ranges: each is a request of its own, so that one that fails is asked for again alone."""
        with self._answering(key):
            size = (await self._store.head_async(key))["size"]
        for begin in range(0, size, PART_BYTES):
            with self._answering(key):
                part = await self._store.get_range_async(key, start=begin, end=min(begin + PART_BYTES, size))
            yield bytes(part)

    @contextlib.contextmanager
    def _answering(self, key: str) -> Iterator[None]:
        """obstore's exceptions become ours."""
        try:
            yield
        except (self._failed, OSError) as error:
            if isinstance(error, FileNotFoundError) and not any(word in str(error) for word in _NO_BUCKET):
                raise NotThere(key) from error
            raise StorageUnavailable(f"the object store {self.url}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """Without obstore's own notes, and of the server's page only what it is about."""
    text, is_page, page = str(error).partition("\n\n")[0].partition("<?xml")
    code = re.search(r"<Code>(\w{1,60})</Code>", page) if is_page else None
    return f"{text.strip(' :')}{f': {code[1]}' if code else ''}"
