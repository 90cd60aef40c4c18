"""An object store in a folder of plain files, each in the place that its key says."""

import asyncio
import hashlib
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from shoal.catalog.objects import Found, NotThere, Objects


class FolderObjects(Objects):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def get(self, key: str) -> bytes:
        try:
            return await asyncio.to_thread((self.folder / key).read_bytes)
        except FileNotFoundError:
            raise NotThere(key) from None

    async def size_of(self, key: str) -> int | None:
        path = self.folder / key
        return path.stat().st_size if path.is_file() else None

    async def put(self, key: str, data: bytes) -> None:
        self._staged(data).replace(self._place(key))

    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> None:
        self._staged(b"".join([part async for part in parts])).replace(self._place(key))

    async def create(self, key: str, data: bytes) -> bool:
        staged = self._staged(data)
        try:
            os.link(staged, self._place(key))
        except FileExistsError:
            return False
        finally:
            staged.unlink()
        return True

    async def list(self, prefix: str) -> list[Found]:
        paths = (path for path in (self.folder / prefix).rglob("*") if path.is_file())
        found = []
        for path in sorted(paths):
            stat = path.stat()
            key = path.relative_to(self.folder).as_posix()
            found.append(Found(key, stat.st_size, stat.st_mtime, f"{stat.st_mtime_ns}-{stat.st_ino}"))
        return found

    async def delete(self, key: str) -> None:
        (self.folder / key).unlink(missing_ok=True)

    async def fetch(self, key: str, into: Path) -> str:
        data = await self.get(key)
        await asyncio.to_thread(into.write_bytes, data)
        return hashlib.sha256(data).hexdigest()

    def _staged(self, data: bytes) -> Path:
        path = self.folder / ".staged" / secrets.token_hex(8)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def _place(self, key: str) -> Path:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        return path
