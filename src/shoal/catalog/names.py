"""What a model may be called, where its record stands, and which known name a mistyped one is near.

Names are `org/name` or `name`, asked for as `name[@version][:variant]`. No name holds `@`, `:` or `__`, which
stands for the slash in routes that cannot hold one.
"""

import bisect
import difflib
import re
from collections.abc import Collection, Iterable

import msgspec

from shoal.protocol.errors import InvalidInput

_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_NAME = re.compile(f"{_PART}(?:/{_PART})?")
_MAX_CHARACTERS = 128
_MOST_COMPARED = 128


class Asked(msgspec.Struct, frozen=True):
    """What `org/name@version:variant` asks for; `version` and `variant` may be ""."""

    name: str
    version: str = ""
    variant: str = ""


def parse_name(asked: str) -> Asked:
    """Splits and checks nothing: a name that no model can have is simply not found."""
    rest, _, variant = asked.partition(":")
    name, _, version = rest.partition("@")
    return Asked(name, version, variant)


def check_name(name: str) -> str:
    """`name` as it is. Raises InvalidInput where no model may be called so."""
    if len(name) > _MAX_CHARACTERS:
        raise InvalidInput(f"a model's name has at most {_MAX_CHARACTERS} characters, this one {len(name)}")
    if not _NAME.fullmatch(name) or "__" in name:
        raise InvalidInput(
            f"{name!r} cannot name a model: use letters, digits, `.`, `-`, single `_`, and at most one `/`"
        )
    return name


def name_of_folder(folder_name: str) -> str:
    """A name made from a folder's; what is not allowed becomes a dash. Raises InvalidInput if none is."""
    return check_name(re.sub(r"[^A-Za-z0-9.]+", "-", folder_name).strip("-."))


def slug(name: str) -> str:
    """A file name for a model; different names never share one, because no name holds `__`."""
    return name.replace("/", "__")


def near(name: str, known: Iterable[str]) -> str:
    """The known name that `name` was most likely meant to be, or "". Of very many known ones only those are
    compared that begin or end as it does: anybody may ask for unknown names, and to compare two costs 0.1 ms.
    """
    wanted = name[:_MAX_CHARACTERS].casefold()
    folded = {candidate.casefold(): candidate for candidate in known}
    by_last_part = [candidate for key, candidate in folded.items() if key.rpartition("/")[2] == wanted]
    if by_last_part:
        return by_last_part[0]
    found = difflib.get_close_matches(wanted, _alike(wanted, folded), n=1, cutoff=0.6)
    return folded[found[0]] if found else ""


def _alike(wanted: str, keys: Collection[str]) -> Collection[str]:
    if len(keys) <= _MOST_COMPARED:
        return keys
    half = _MOST_COMPARED // 2
    return {
        *_around(wanted, sorted(keys), half),
        *(key[::-1] for key in _around(wanted[::-1], sorted(key[::-1] for key in keys), half)),
    }


def _around(wanted: str, ordered: list[str], count: int) -> list[str]:
    place = bisect.bisect_left(ordered, wanted)
    return ordered[max(0, place - count // 2) : place + count // 2]
