"""Folders of model files named by their content. Written whole or not at all: a folder that has its name was
complete and on the disk when it got it. Knows nothing of cards or models.
"""

import hashlib
import os
import re
import shutil
from pathlib import Path

from shoal.catalog import Report
from shoal.protocol import sizes
from shoal.protocol.errors import ResourceExhausted

_CHUNK_BYTES = 4 * 1024 * 1024
_DIGEST = re.compile("[0-9a-f]{64}")


def digest_of(folder: Path, report: Report) -> str:
    """sha256 over the sorted lines `<sha256 of the file>  <its path>`, as `sha256sum` prints them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    total, done = sum(path.stat().st_size for path in files), 0
    lines = []
    for path in files:
        lines.append(f"{sha256_of(path)}  {path.relative_to(folder).as_posix()}\n")
        done += path.stat().st_size
        report("checking", done, total)
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def matches(path: Path, *, sha256: str, blob: str) -> bool:
    """Whether a file is what its origin says: by `sha256`, else by the id that git gives its content, else
    (neither is known) by being there.
    """
    if sha256:
        return sha256_of(path) == sha256
    data = path.read_bytes() if blob else b""
    return not blob or hashlib.sha1(b"blob %d\0%b" % (len(data), data), usedforsecurity=False).hexdigest() == blob


def size_of(folder: Path) -> int:
    """Bytes in the files below `folder`."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def place(staged: Path, artifacts: Path, report: Report) -> str:
    """Move a finished folder to its name in `artifacts`; its digest. A damaged namesake is replaced."""
    digest = digest_of(staged, report)
    target = artifacts / digest
    if target.is_dir():
        if digest_of(target, report) == digest:
            shutil.rmtree(staged)
            return digest
        shutil.rmtree(target)
    for path in [*staged.rglob("*"), staged]:
        sync(path)
    artifacts.mkdir(parents=True, exist_ok=True)
    staged.rename(target)
    sync(artifacts)
    return digest


def sweep(artifacts: Path, keep: set[str]) -> None:
    """Remove the artifacts that nothing refers to. Leaves alone whatever is not named like one."""
    if artifacts.is_dir():
        for folder in artifacts.iterdir():
            if _DIGEST.fullmatch(folder.name) and folder.name not in keep:
                shutil.rmtree(folder)


def write_file(path: Path, data: bytes) -> None:
    """Replace `path` in one step: a reader sees the old bytes or the new, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_bytes(data)
    sync(fresh)
    fresh.replace(path)
    sync(path.parent)


def signature_of(folder: Path, suffix: str) -> object:
    """Differs after every write and removal of a file with that suffix. The folder's mtime alone misses two in one
    clock tick."""
    try:
        with os.scandir(folder) as entries:
            stats = [(entry.name, entry.stat()) for entry in entries if entry.name.endswith(suffix)]
    except FileNotFoundError:
        return []
    return sorted((name, stat.st_mtime_ns, stat.st_ino, stat.st_size) for name, stat in stats)


def copy(source: Path, target: Path) -> int:
    """Copy one file's bytes, without its permissions or times; how many."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as reader, target.open("xb") as writer:
        shutil.copyfileobj(reader, writer, _CHUNK_BYTES)
        return writer.tell()


def need_space(folder: Path, size_bytes: int) -> None:
    """Raises ResourceExhausted where the disk under `folder` could not take that much more."""
    free = shutil.disk_usage(folder).free
    if size_bytes > free:
        raise ResourceExhausted(
            f"the model needs {sizes.in_words(size_bytes)} and its disk has {sizes.in_words(free)} left; "
            "make room, or set SHOAL_HOME to a folder on a larger disk",
            limit=free,
            size=size_bytes,
            setting="SHOAL_HOME",
        )


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
