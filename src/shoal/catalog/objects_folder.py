"""An object store in a folder of plain files, each in the place that its key says. Any number of processes may use
it at once, and any of them may be killed at any moment: what is not complete is in `.staged`, which no key names.

Needs a file system with hard links (`create` is a link that may not replace anything).
"""

import contextlib
import errno
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

from shoal.catalog.artifacts import sync
from shoal.catalog.objects import FULL, IDENTITY, PART_BYTES, Found, NotThere, Objects, append, in_thread
from shoal.protocol.errors import InvalidInput, ResourceExhausted, StorageUnavailable

_STAGED = ".staged"
_TRIES = 20
_Namer = Callable[[Path, Path], None]
"""os.replace or os.link."""
T = TypeVar("T")


class FolderObjects(Objects):
    """The folder is made by the first write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._had_identity = False

    async def get(self, key: str) -> bytes:
        path = self._path(key)

        def read() -> bytes:
            with _opened(path, key) as file:
                return file.read()

        return await self._do(read)

    async def size_of(self, key: str) -> int | None:
        path = self._path(key)

        def look() -> int | None:
            return path.stat().st_size if path.is_file() else None

        return await self._do(look)

    async def put(self, key: str, data: bytes) -> None:
        await self._write(key, data, os.replace)

    async def create(self, key: str, data: bytes) -> bool:
        try:
            await self._write(key, data, os.link)
        except FileExistsError:
            return False
        return True

    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> None:
        path, staged = self._path(key), self._staged()
        try:
            await self._do(self._stage, staged)
            async for part in parts:
                await self._do(append, staged, part)
            await self._do(self._name, staged, path, os.replace)
        finally:
            await in_thread(staged.unlink, True)

    async def list(self, prefix: str) -> list[Found]:
        return await self._do(lambda: sorted(self._below(self._top(prefix)), key=lambda found: found.key))

    async def keys(self, prefix: str) -> Sequence[str]:
        return await self._do(
            lambda: [path[len(str(self.folder)) + 1 :] for path in self._paths(self._top(prefix))]
        )

    async def delete(self, key: str) -> None:
        path = self._path(key)

        def remove() -> None:
            path.unlink(missing_ok=True)
            for folder in path.parents:
                if folder == self.folder:
                    break
                try:
                    folder.rmdir()
                except OSError:  # not empty, or somebody else was quicker
                    break

        await self._do(remove)

    async def parts(self, key: str) -> AsyncIterator[bytes]:
        path, offset = self._path(key), 0

        def read() -> bytes:
            with _opened(path, key) as file:
                file.seek(offset)
                return file.read(PART_BYTES)

        while data := await self._do(read):
            yield data
            offset += len(data)

    async def sweep(self, older_than_s: float) -> int:
        def remove() -> int:
            before, removed = time.time() - older_than_s, 0
            for path in (self.folder / _STAGED).glob("*"):
                with contextlib.suppress(FileNotFoundError):  # its writer lives
                    if path.stat().st_mtime < before:
                        path.unlink()
                        removed += 1
            return removed

        return await self._do(remove)

    async def _write(self, key: str, data: bytes, name: _Namer) -> None:
        path = self._path(key)

        def write() -> None:
            staged = self._staged()
            try:
                self._stage(staged, data)
                self._name(staged, path, name)
            finally:
                staged.unlink(missing_ok=True)

        await self._do(write)

    def _staged(self) -> Path:
        """A name that nobody has, for what is being written."""
        return self.folder / _STAGED / secrets.token_hex(12)

    def _stage(self, staged: Path, data: bytes = b"") -> None:
        staged.parent.mkdir(parents=True, exist_ok=True)
        staged.write_bytes(data)

    def _name(self, staged: Path, path: Path, name: _Namer) -> None:
        """Give what is staged, once it is on the disk, its place. Who deletes takes empty folders away."""
        sync(staged)
        for attempt in range(_TRIES):
            made = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                name(staged, path)
            except FileNotFoundError:
                if attempt + 1 == _TRIES:
                    raise
                continue
            for folder in (path.parent, *(folder.parent for folder in made)):
                with contextlib.suppress(FileNotFoundError):
                    sync(folder)
            return

    def _top(self, prefix: str) -> str:
        return str(self._path(prefix.removesuffix("/")) if prefix else self.folder)

    def _paths(self, top: str) -> Iterator[str]:
        """Every file below that a key can name: not what is being written, nor what else begins with a dot, nor
        links, which may lead anywhere. Nothing is asked of the files: there may be many."""
        folders = [top]
        while folders:
            try:
                with os.scandir(folders.pop()) as entries:
                    for entry in entries:
                        if entry.name.startswith(".") or entry.is_symlink():
                            continue
                        if not entry.is_dir():
                            yield entry.path
                        else:
                            folders.append(entry.path)
            except (FileNotFoundError, NotADirectoryError):
                continue  # there is none, or no more

    def _below(self, top: str) -> Iterator[Found]:
        for path in self._paths(top):
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                stat = os.stat(path)  # noqa: PTH116  # by its name: there may be many
                etag = f"{stat.st_mtime_ns:x}-{stat.st_ino:x}-{stat.st_size:x}"
                yield Found(path[len(str(self.folder)) + 1 :], stat.st_size, stat.st_mtime, etag)

    def _path(self, key: str) -> Path:
        """Raises InvalidInput for a key that would lead elsewhere."""
        if any(not part or part.startswith(".") or "\0" in part for part in key.split("/")):
            raise InvalidInput(f"{key!r} cannot be a key of the object store")
        return self.folder / key

    async def _do(self, work: Callable[..., T], *args: Any) -> T:
        try:
            return await in_thread(self._where_it_was, work, *args)
        except FileExistsError:
            raise
        except OSError as error:
            raise self._refusal(error) from error

    def _where_it_was(self, work: Callable[..., T], *args: Any) -> T:
        """Do it, unless the folder is not the one that it was. Where its disk is not mounted any more there may be
        another, empty one, and what is written to that nobody finds again."""
        has_identity = (self.folder / IDENTITY).is_file()
        if self._had_identity and not has_identity:
            raise StorageUnavailable(f"the object store {self.folder} is gone; was it removed, or unmounted?")
        self._had_identity = has_identity
        return work(*args)

    def _refusal(self, error: OSError) -> StorageUnavailable | ResourceExhausted:
        if error.errno in FULL:
            where = f"the disk of {self.folder} is full, or that of what is fetched from it"
            return ResourceExhausted(
                f"{where}; make room, or name another folder by --objects", setting="--objects"
            )
        is_link = error.errno in (errno.EPERM, errno.EOPNOTSUPP)
        hint = "; it needs a file system with hard links" if is_link else ""
        return StorageUnavailable(f"the object store {self.folder}: {error.strerror or error}{hint}")


def _opened(path: Path, key: str) -> IO[bytes]:
    """Raises NotThere."""
    try:
        return path.open("rb")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise NotThere(key) from None
