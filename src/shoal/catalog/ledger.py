"""What happened to a pushed name, as a list of changes, and what follows from it. Pure.

A name's versions are numbers from 1, whose bytes never change: a number is never given twice, also when its
version or the whole name was removed. `name` alone means the `current` version, which a push or a rollback moves.
"""

from collections.abc import Iterable

import msgspec

from shoal.catalog import Card
from shoal.protocol.facts import Facts


class _Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="change"):
    """`at` in unix seconds; `who` is the id of the key that asked, or what else tells who it was."""

    at: float
    who: str
    note: str = ""


class Pushed(_Change, frozen=True, kw_only=True, omit_defaults=True, tag="pushed"):
    """A version, which becomes current. `version` is given by the ledger: that of the same `digest`, else the
    next. An adapter has a `base`, by name and by the digest that it was proved with."""

    digest: str
    card: Card
    facts: Facts
    size_bytes: int
    base: str = ""
    base_digest: str = ""
    version: int = 0


class Aliased(_Change, frozen=True, kw_only=True, omit_defaults=True, tag="aliased"):
    """`alias` means `version` from now on; 0 stands for the current one, as it is then."""

    alias: str
    version: int = 0


class RolledBack(_Change, frozen=True, kw_only=True, omit_defaults=True, tag="rolled back"):
    """`alias`, or where it is "" the current one, is what it was before, or `version`, where that is said."""

    alias: str = ""
    version: int = 0


class Removed(_Change, frozen=True, kw_only=True, omit_defaults=True, tag="removed"):
    """One `version`, or one `alias`, or, where neither is said, the whole name."""

    version: int = 0
    alias: str = ""


Change = Pushed | Aliased | RolledBack | Removed


class Entry(msgspec.Struct, frozen=True):
    """A change as the ledger keeps it: the `number`th of its name, from 1."""

    number: int
    change: Change


class Version(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    number: int
    digest: str
    card: Card
    facts: Facts
    size_bytes: int
    base: str = ""
    base_digest: str = ""
    at: float
    who: str


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the audit. `what` says it in words."""

    number: int
    at: float
    who: str
    what: str
    note: str = ""


class NameState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a name means after its `number`th change. `current` is 0 where the name was removed, or never was.

    `last` is the highest version number that was ever given; `before` what each alias, and "" for the current
    version, meant earlier, the latest last.
    """

    name: str
    number: int = 0
    versions: dict[int, Version] = {}
    current: int = 0
    aliases: dict[str, int] = {}
    last: int = 0
    before: dict[str, tuple[int, ...]] = {}
    history: tuple[Event, ...] = ()

    @property
    def is_there(self) -> bool:
        return self.current > 0


def fold(state: NameState, entries: Iterable[Entry]) -> NameState:
    """`state` after `entries`, which go on where it ends."""
    raise NotImplementedError


def judge(state: NameState, change: Change, *, taken: bool = False) -> Change | None:
    """The change as it is to be written, with its version; None where it changes nothing.

    `taken`: the name is that of a model that was not pushed. Raises Conflict, InvalidInput, ModelNotFound.
    """
    raise NotImplementedError
