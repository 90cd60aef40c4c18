"""The object store, where models that were pushed and their ledger are kept: a folder, or a bucket of S3, Google
Cloud Storage or Azure. Keys are relative paths with `/`; a value is written whole or not at all.

Knows bytes by key, nothing of what they mean. The only file that speaks to buckets, through obstore, which the
extra `cluster` brings.
"""

import asyncio
import errno
import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from shoal.protocol.errors import ResourceExhausted

PART_BYTES = 8 * 1024 * 1024
FULL = (errno.ENOSPC, errno.EDQUOT)


class NotThere(KeyError):
    """Nothing has that key."""


class Found(msgspec.Struct, frozen=True):
    """`modified` in unix seconds; `etag` differs after every write of that key."""

    key: str
    size_bytes: int
    modified: float
    etag: str = ""


class Objects(ABC):
    """Every way to fail but NotThere is a ShoalError: StorageUnavailable, ResourceExhausted."""

    @classmethod
    def open(cls, url: str) -> "Objects":
        """A folder by its path or file:// URL, or s3:// gs:// az:// and a bucket, maybe with a prefix; credentials
        are found as obstore finds them, in the environment. Raises InvalidInput for anything else."""
        from shoal.catalog.objects_folder import FolderObjects

        return FolderObjects(Path(url.removeprefix("file://")).expanduser())

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
        writer = await asyncio.to_thread(into.open, "xb")
        try:
            async for part in self.parts(key):
                await asyncio.to_thread(digest.update, part)
                await asyncio.to_thread(writer.write, part)
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise ResourceExhausted(
                f"the disk of {into.parent} is full; make room", setting="SHOAL_HOME"
            ) from error
        finally:
            await asyncio.to_thread(writer.close)
        return digest.hexdigest()

    async def sweep(self, older_than_s: float) -> int:
        """Remove what writers that died have left behind and no key names; how many. A bucket leaves nothing that
        we see: its rule for unfinished multipart uploads removes those."""
        return 0
