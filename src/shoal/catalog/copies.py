"""Copies on this disk of artifacts that are in the object store: `fetched/<digest>/`, complete and checked when it
got its name. Any of them may go at any time, and is fetched again when it is wanted.

    fetching/<digest>/    files of a copy that is on its way; the next attempt goes on from them
    fetching/<digest>.lock   held by the process that fetches it

Knows folders. Does not know who uses a copy, nor where it comes from.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from shoal.catalog.artifacts import size_of, sync
from shoal.catalog.leftovers import DIGEST


class Copy(msgspec.Struct, frozen=True):
    """`used_at` is when it was last loaded from, in unix seconds."""

    size_bytes: int
    used_at: float


class Copies:
    def __init__(self, home: Path) -> None:
        self._here, self._coming = home / "fetched", home / "fetching"

    def path(self, digest: str) -> Path:
        """Where it stands if it is here."""
        return self._here / digest

    def all(self) -> dict[str, Copy]:
        """By digest."""
        found: dict[str, Copy] = {}
        for folder in self._here.iterdir() if self._here.is_dir() else ():
            if DIGEST.fullmatch(folder.name):
                with contextlib.suppress(FileNotFoundError):  # it goes just now
                    found[folder.name] = Copy(size_of(folder), folder.stat().st_mtime)
        return found

    def used(self, digest: str) -> bool:
        """It is loaded from now; False where it is not here."""
        try:
            os.utime(self.path(digest))
        except FileNotFoundError:
            return False
        return True

    def remove(self, digest: str) -> None:
        """Nobody sees half of it. Processes that have its files open keep what they read."""
        gone = self._here / f".gone.{digest}.{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            self.path(digest).rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def make_room(self, taken: int, size_bytes: int, budget: int) -> None:
        """Remove copies for `size_bytes` more, as `to_drop` says; `taken` by installed models."""
        free = shutil.disk_usage(self._here.parent).free
        for digest in to_drop(self.all(), taken, size_bytes, budget, free):
            self.remove(digest)

    def coming(self, digest: str) -> Path:
        """The folder in which a copy is put together; made here."""
        folder = self._coming / digest
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def came(self, digest: str) -> Path:
        """It is whole: it gets its name."""
        folder, target = self._coming / digest, self.path(digest)
        for path in [*folder.rglob("*"), folder]:
            sync(path)
        self._here.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            shutil.rmtree(folder)
        else:
            folder.rename(target)
            sync(self._here)
        self.used(digest)
        return target

    def drop_coming(self, digest: str) -> None:
        """What came of it is not worth keeping."""
        shutil.rmtree(self._coming / digest, ignore_errors=True)

    @contextlib.contextmanager
    def alone(self, digest: str) -> Iterator[bool]:
        """Whether no other process fetches it, nor will while the block lasts. The kernel ends it with us."""
        import fcntl  # not on Windows

        self._coming.mkdir(parents=True, exist_ok=True)
        path = self._coming / f"{digest}.lock"
        with path.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True


def to_drop(copies: Mapping[str, Copy], taken: int, size_bytes: int, budget: int, free: int) -> list[str]:
    """The copies to remove so that `size_bytes` more fit beside `taken` of installed models, least recently used
    first; all of them where even that is not enough. `budget` 0 is none; `free` bytes are left on the disk."""
    held = sum(copy.size_bytes for copy in copies.values())
    excess = max(taken + held + size_bytes - budget if budget else 0, size_bytes - free)
    going: list[str] = []
    for digest in sorted(copies, key=lambda digest: (copies[digest].used_at, digest)):
        if excess <= 0:
            break
        going.append(digest)
        excess -= copies[digest].size_bytes
    return going
