"""A model from a .tar or .tar.gz of its folder. The archive is read twice, its names first: one that holds
anything but plain files and folders inside it is refused before a byte is written.
"""

import gzip
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, Self, cast

from shoal.catalog import Taking, Tar
from shoal.catalog.choice import choose_files
from shoal.protocol.errors import InvalidInput

_CHUNK_BYTES = 4 * 1024 * 1024
_MAX_ENTRIES = 10_000
_MAX_HEADER_BYTES = 16 * 1024 * 1024
_MAX_RATIO = 200
"""A model hardly shrinks, and its tokenizer to a tenth; what unpacks to more than this many times its size is
made to fill a disk. Small archives may.
"""
_SMALL_BYTES = 64 * 1024 * 1024


def fetch(source: Tar, into: Path, taking: Taking) -> str:
    """Raises InvalidInput where the archive is broken, holds what it may not, or no model."""
    path = Path(source.path)
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}")
    taking.report("reading the archive", 0, 0)
    try:
        sizes = _sizes(path)
        top = _top(sizes)
        chosen = choose_files({n.removeprefix(top): size for n, size in sizes.items() if n.startswith(top)})
        wanted = {top + name: target for target, name in chosen.items()}
        taking.need(sum(sizes[name] for name in wanted))
        _unpack(path, wanted, into, taking, sum(sizes[name] for name in wanted))
    except (tarfile.TarError, zlib.error, EOFError, OSError) as e:
        if isinstance(e, OSError) and e.errno is not None:
            raise  # of the disk, not of the archive
        raise InvalidInput(f"{path.name} is broken, or no archive: {e}") from e
    return ""


def _sizes(path: Path) -> dict[str, int]:
    """Name → bytes of every file. Raises InvalidInput for what an archive of a model does not hold."""
    sizes: dict[str, int] = {}
    total, most = 0, max(path.stat().st_size * _MAX_RATIO, _SMALL_BYTES)
    with path.open("rb") as file, _opened(file) as archive:
        for number, entry in enumerate(archive):
            name = _name(entry)
            total += entry.size
            if number >= _MAX_ENTRIES or total > most:
                raise InvalidInput(
                    f"{path.name} unpacks to over {_MAX_ENTRIES} entries, or over {_MAX_RATIO} times its size; "
                    "nothing of it was taken"
                )
            if entry.isreg() and name in sizes:
                raise InvalidInput(f"{path.name} holds {name!r} twice; nothing of it was taken")
            if entry.isreg():
                sizes[name] = entry.size
    return sizes


def _unpack(path: Path, wanted: dict[str, str], into: Path, taking: Taking, total: int) -> None:
    done = 0
    with path.open("rb") as file, _opened(file) as archive:
        for entry in archive:
            target = wanted.pop(_name(entry), None)
            reader = archive.extractfile(entry) if target else None
            if target is None or reader is None:
                continue
            (into / target).parent.mkdir(parents=True, exist_ok=True)
            with (into / target).open("xb") as writer:
                while chunk := reader.read(_CHUNK_BYTES):
                    done += writer.write(chunk)
                    taking.report("unpacking", done, total)


def _name(entry: tarfile.TarInfo) -> str:
    """Inside the archive, without a `./`. Raises InvalidInput where it leads out, or is no file and no folder."""
    path = PurePosixPath(entry.name)
    is_plain = (entry.isreg() or entry.isdir()) and not entry.issparse()
    if not is_plain or path.is_absolute() or ".." in path.parts or "\\" in entry.name:
        what = "leads out of it" if is_plain else "is a link, a device or another thing that is no plain file"
        raise InvalidInput(f"the archive holds {entry.name!r}, which {what}; nothing was taken")
    return str(path)


def _top(sizes: dict[str, int]) -> str:
    """The one folder that everything is in, with a slash; "" where files stand on top."""
    firsts = {name.partition("/")[0] for name in sizes}
    is_one = len(firsts) == 1 and all("/" in name for name in sizes)
    return f"{firsts.pop()}/" if is_one else ""


def _opened(file: IO[bytes]) -> tarfile.TarFile:
    """A stream, read once from its start to its end. Plain or gzip, no other compression."""
    start = file.read(2)
    file.seek(0)
    plain = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if start == b"\x1f\x8b" else file
    return tarfile.open(fileobj=plain, mode="r|", tarinfo=_Entry)


class _Entry(tarfile.TarInfo):
    """The library reads a long name, or the headers of an entry, into memory at once, as long as they say."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str | None, errors: str) -> Self:
        entry = super().frombuf(buf, encoding or "utf-8", errors)
        if not entry.isreg() and entry.size > _MAX_HEADER_BYTES:
            raise InvalidInput(f"an entry's header says that it has {entry.size} bytes; nothing was taken")
        return entry
