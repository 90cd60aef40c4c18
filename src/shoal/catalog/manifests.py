"""What a pushed model consists of: its files by path, content and size. Read from a folder by who pushes, judged
by who receives, by one rule: the files that `shoal add` would take, under the names that the store gives them.
"""

import hashlib
import re
import stat
import unicodedata
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated

import msgspec

from shoal.catalog import Report
from shoal.catalog.artifacts import sha256_of
from shoal.catalog.choice import choose_files
from shoal.catalog.folder import names_in
from shoal.protocol.errors import InvalidInput, PayloadTooLarge, over_limit

MAX_ARTIFACT_BYTES = 10_000_000_000
MAX_ARTIFACT_FILES = 1000
MAX_UNFINISHED_BYTES = 20_000_000_000
MAX_UNFINISHED_BYTES_PER_KEY = MAX_UNFINISHED_BYTES // 2
_SHA256 = re.compile("[0-9a-f]{64}")
OF_NOTHING = hashlib.sha256().hexdigest()
_MAX_PATH_BYTES = 400

_Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class File(msgspec.Struct, frozen=True):
    """`path` is relative, with `/`, and is the one that the store gives the file."""

    path: str
    sha256: _Sha256
    size_bytes: Annotated[int, msgspec.Meta(ge=0)]


class Manifest(msgspec.Struct, frozen=True):
    files: tuple[File, ...]

    @property
    def digest(self) -> str:
        """What `artifacts.digest_of` gives for a folder of these files."""
        lines = sorted(f"{file.sha256}  {file.path}\n" for file in self.files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


class Limits(msgspec.Struct, frozen=True):
    """What one artifact may have: --max-artifact-bytes, --max-artifact-files. And all together that is no version
    of any name yet, or no more: --max-unfinished-bytes, and --max-unfinished-bytes-per-key of one sender."""

    artifact_bytes: int = MAX_ARTIFACT_BYTES
    artifact_files: int = MAX_ARTIFACT_FILES
    unfinished_bytes: int = MAX_UNFINISHED_BYTES
    unfinished_bytes_per_key: int = MAX_UNFINISHED_BYTES_PER_KEY


class Read(msgspec.Struct, frozen=True):
    """A folder's manifest, and where each of its files stands: path in the manifest → file on this disk."""

    manifest: Manifest
    places: dict[str, Path]


def read_folder(folder: Path, report: Report, limits: Limits | None = None) -> Read:
    """Reads every byte that would be pushed, once. Raises InvalidInput where the folder is no model's or
    adapter's, or a file of it is a link or no plain file, PayloadTooLarge where it is over a limit."""
    if not folder.is_dir():
        raise InvalidInput(f"there is no folder {folder}")
    sizes = {name: (folder / name).lstat().st_size for name in names_in(folder)}
    chosen = dict(sorted(choose_files(sizes).items()))
    for name in chosen.values():
        _check_plain(folder, name)
    _check_limits({target: sizes[name] for target, name in chosen.items()}, limits or Limits())
    total, done, files = sum(sizes[name] for name in chosen.values()), 0, []
    for target, name in chosen.items():
        path = folder / name
        files.append(File(target, sha256_of(path), path.stat().st_size))
        done += sizes[name]
        report("reading", done, total)
    return Read(Manifest(tuple(files)), {target: folder / name for target, name in chosen.items()})


def check_manifest(manifest: Manifest, limits: Limits) -> None:
    """1. Too much. 2. A path that could lead somewhere, or be another's. 3. A hash that is none, or of two sizes.
    4. What no model needs, or under another name than the store's. Raises InvalidInput, PayloadTooLarge."""
    _check_limits({str(n): file.size_bytes for n, file in enumerate(manifest.files)}, limits)  # 1
    for file in manifest.files:
        _check_path(file.path)  # 2
    _check_apart([file.path for file in manifest.files])
    sizes = {OF_NOTHING: 0}
    for file in manifest.files:
        size = sizes.setdefault(file.sha256, file.size_bytes)
        is_empty = file.sha256 == OF_NOTHING
        if not _SHA256.fullmatch(file.sha256) or size != file.size_bytes or is_empty != (size == 0):  # 3
            raise InvalidInput(f"{file.path}: {file.size_bytes} bytes cannot have the sha256 {file.sha256[:64]!r}")
    chosen = choose_files({file.path: file.size_bytes for file in manifest.files})
    for file in manifest.files:
        if chosen.get(file.path) != file.path:  # 4
            raise InvalidInput(
                f"{file.path!r} is none of the files that a model here consists of; `shoal push` chooses "
                "them, and leaves out what only lies about"
            )


def _check_limits(sizes: Mapping[str, int], limits: Limits) -> None:
    if not sizes:
        raise InvalidInput("no file at all is no model")
    if len(sizes) > limits.artifact_files:
        raise over_limit(
            PayloadTooLarge, "the number of files", seen=len(sizes), limit=limits.artifact_files,
            setting="--max-artifact-files",
        )  # fmt: skip
    if min(sizes.values()) < 0:
        raise InvalidInput("a file has no fewer than 0 bytes")
    if sum(sizes.values()) > limits.artifact_bytes:
        raise over_limit(
            PayloadTooLarge, "the model", seen=sum(sizes.values()), limit=limits.artifact_bytes, unit="bytes",
            setting="--max-artifact-bytes",
        )  # fmt: skip


def _check_path(path: str) -> None:
    parts = path.split("/")
    is_plain = path.isprintable() and "\\" not in path and unicodedata.is_normalized("NFC", path)
    if not is_plain or len(path.encode()) > _MAX_PATH_BYTES or any(p.strip(" ") in ("", ".", "..") for p in parts):
        raise InvalidInput(f"{path[:100]!r} cannot be the path of a model's file: it is relative, plain and short")


def _check_apart(paths: list[str]) -> None:
    """No two may be one file, or a file and its folder, on a disk that does not tell capitals."""
    seen = {str(parent) for path in paths for parent in PurePosixPath(path.casefold()).parents}
    for path in paths:
        if path.casefold() in seen:
            raise InvalidInput(f"{path!r} is there twice, maybe in other capitals, or is also a folder")
        seen.add(path.casefold())


def _check_plain(folder: Path, name: str) -> None:
    """Neither the file nor a folder on the way to it may be a link: what is pushed is what stands there."""
    path = folder
    for part in PurePosixPath(name).parts:
        path = path / part
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise InvalidInput(f"{name} is a link, or in a folder that is one; put the file itself there")
    if not stat.S_ISREG(mode):
        raise InvalidInput(f"{name} is no plain file; only such are pushed")
