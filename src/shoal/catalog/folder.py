"""A model from a folder on this machine: a fine-tune, or a snapshot in a hub's cache. Copies, never links."""

from collections.abc import Iterator
from pathlib import Path

from shoal.catalog import Folder, Taking
from shoal.catalog.artifacts import copy
from shoal.catalog.choice import choose_files
from shoal.protocol.errors import InvalidInput


def fetch(source: Folder, into: Path, taking: Taking) -> str:
    """Raises InvalidInput where the folder is no model's, or a link in it leads out of it."""
    folder = Path(source.path).expanduser()
    if not folder.is_dir():
        raise InvalidInput(f"there is no folder {folder}")
    sizes = {name: (folder / name).stat().st_size for name in names_in(folder) if (folder / name).is_file()}
    chosen = choose_files(sizes)
    inside = _boundary(folder)
    for name in chosen.values():
        if not (folder / name).resolve().is_relative_to(inside):
            raise InvalidInput(f"{name} is a link to a file outside {folder}; copy the file itself there")
    total = sum(sizes[name] for name in chosen.values())
    taking.need(total)
    done = 0
    for target, name in sorted(chosen.items()):
        done += copy(folder / name, into / target)
        taking.report("copying", done, total)
    return ""


def names_in(folder: Path) -> Iterator[str]:
    """Whatever is no folder where a model's files may stand. A home folder is not walked through."""
    for pattern in ("*", "*/*.json", "*/*.safetensors", "onnx/*"):
        yield from (path.relative_to(folder).as_posix() for path in folder.glob(pattern) if not path.is_dir())


def _boundary(folder: Path) -> Path:
    """Links may lead anywhere in the folder; in a hub's cache anywhere in that model's blobs.

    There a snapshot is `models--org--name/snapshots/<revision>`, whose files link to `…/blobs`.
    """
    real = folder.resolve()
    snapshots = real.parent
    is_hub = snapshots.name == "snapshots" and snapshots.parent.name.startswith("models--")
    return snapshots.parent if is_hub else real
