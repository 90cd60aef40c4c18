"""What lies in the store's folder and no installed model needs: artifacts, half-written adds, unfinished
downloads, copies of what is in an object store, measurements and profiles of models that are gone. Finds and
removes; the store says what is needed.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from shoal.catalog.artifacts import size_of

DIGEST = re.compile("[0-9a-f]{64}")
DIGITS_IN_MEASURED = 32
"""Files of measurements and profiles are named by so many digits of the model's digest, and more."""


class Leftover(msgspec.Struct, frozen=True):
    path: Path
    size_bytes: int
    why: str


def find(home: Path, digests: set[str] | None) -> Iterator[Leftover]:
    """`digests` are the artifacts that records name; None, where that is not known, spares all of them."""
    for path in _entries(home / "staging"):
        yield Leftover(path, _size(path), "left by an add that did not finish")
    for path in (*_entries(home / "downloads"), *_not_coming(home)):
        yield Leftover(path, _size(path), "a download that did not finish")
    copies = [path for path in _entries(home / "fetched") if DIGEST.fullmatch(path.name)]
    for path in copies:
        yield Leftover(path, _size(path), "a copy of a pushed model, which is fetched again when it is asked for")
    if digests is None:
        return
    for path in _entries(home / "artifacts"):
        if DIGEST.fullmatch(path.name) and path.name not in digests:
            yield Leftover(path, _size(path), "no model needs it")
    short = {digest[:DIGITS_IN_MEASURED] for digest in (*digests, *(path.name for path in copies))}
    for folder in ("measured", "profiles"):
        for path in _entries(home / folder):
            if path.name.partition(".")[0] not in short:
                yield Leftover(path, _size(path), "measured of a model that is gone")


def measured_at(home: Path) -> dict[str, float]:
    """When something was last measured of a model, by the first digits of its digest; seconds since the epoch."""
    ran: dict[str, float] = {}
    for path in (home / "measured").glob("*.json"):
        key = path.name.partition(".")[0]
        ran[key] = max(ran.get(key, 0.0), path.stat().st_mtime)
    return ran


def remove(leftover: Leftover) -> None:
    if leftover.path.is_dir() and not leftover.path.is_symlink():
        shutil.rmtree(leftover.path)
    else:
        leftover.path.unlink(missing_ok=True)


def _not_coming(home: Path) -> list[Path]:
    """Copies that no process is fetching now."""
    from shoal.catalog.copies import Copies  # which takes the shape of a digest from here

    found = []
    for path in _entries(home / "fetching"):
        if DIGEST.fullmatch(path.name):
            with Copies(home).alone(path.name) as is_ours:
                found += [path] * is_ours
    return found


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _size(path: Path) -> int:
    return size_of(path) if path.is_dir() else path.lstat().st_size
