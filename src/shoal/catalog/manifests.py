"""What a pushed model consists of: its files by path, content and size. Read from a folder by who pushes, judged
by who receives, by one rule: the files that `shoal add` would take, under the names that the store gives them.
"""

import hashlib
from pathlib import Path
from typing import Annotated

import msgspec

from shoal.catalog import Report

MAX_ARTIFACT_BYTES = 10_000_000_000
MAX_ARTIFACT_FILES = 1000

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
    """What one artifact may have: --max-artifact-bytes, --max-artifact-files."""

    artifact_bytes: int = MAX_ARTIFACT_BYTES
    artifact_files: int = MAX_ARTIFACT_FILES


class Read(msgspec.Struct, frozen=True):
    """A folder's manifest, and where each of its files stands: path in the manifest → file on this disk."""

    manifest: Manifest
    places: dict[str, Path]


def read_folder(folder: Path, report: Report, limits: Limits | None = None) -> Read:
    """Reads every byte that would be pushed, once. Raises InvalidInput where the folder is no model's or
    adapter's, where a file of it is a link or no plain file, or where it is over a limit."""
    raise NotImplementedError


def check_manifest(manifest: Manifest, limits: Limits) -> None:
    """Raises InvalidInput for paths that are unsafe or not a model's, PayloadTooLarge over a limit."""
    raise NotImplementedError
