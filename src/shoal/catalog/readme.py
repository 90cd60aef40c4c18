"""What a model's README says in a form that programs write: the head between two `---` lines, and the
parameters of a loss in the text that sentence-transformers puts below it. Anything else in it is for people.
"""

import re
from pathlib import Path

_MAX_BYTES = 1024 * 1024
_HEAD = re.compile(r"\A---\s*\n(.*?)\n---", re.DOTALL)
_WIDTHS = re.compile(r'"matryoshka_dims":\s*\[([\d\s,]{1,400})\]')
_SPARSE_TAGS = {"splade", "sparse-encoder"}


def licence_of(folder: Path) -> str:
    """The `license` of the head, "" where it says none."""
    found = re.search(r"^license:[ \t]*[\"']?([A-Za-z0-9.+-]{1,40})[\"']?[ \t]*$", _head(folder), re.MULTILINE)
    return found[1] if found and found[1] != "other" else ""


def is_tagged_sparse(folder: Path) -> bool:
    tags = re.findall(r"^[ \t]*-[ \t]*[\"']?([\w-]{1,60})[\"']?[ \t]*$", _head(folder), re.MULTILINE)
    return not _SPARSE_TAGS.isdisjoint(tags)


def trained_widths(folder: Path) -> set[int]:
    """The widths that a Matryoshka loss was given; with several losses those that all of them had."""
    losses = [{int(number) for number in re.findall(r"\d+", found)} for found in _WIDTHS.findall(_text(folder))]
    return set.intersection(*losses) if losses else set()


def _head(folder: Path) -> str:
    found = _HEAD.match(_text(folder))
    return found[1] if found else ""


def _text(folder: Path) -> str:
    path = folder / "README.md"
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return file.read(_MAX_BYTES).decode(errors="replace").replace("\r\n", "\n")
