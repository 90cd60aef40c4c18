"""What happened to a pushed name, as a list of changes, and what the name means after them. Pure.

A name's versions are numbers from 1, whose bytes never change: a number is never given twice, also when its
version or the whole name was removed. `name` alone means the `current` version, which a push or a rollback moves.
Which changes may be made is said by `judge` (verdicts.py).
"""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from shoal.catalog import Card
from shoal.protocol.facts import Facts

_K = TypeVar("_K")
_V = TypeVar("_V")


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


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A change as the ledger keeps it: the `number`th of its name, from 1. `mark` tells apart writers that
    want to write the same."""

    number: int
    change: Change
    mark: str = ""


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
    """One line of the audit. `what` says it in words; `change` is the kind, `version` the version it was about (0:
    all), `digest` what was pushed."""

    number: int
    at: float
    who: str
    change: str
    what: str
    version: int = 0
    digest: str = ""
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

    def meant_by(self, alias: str) -> int:
        """The version that `alias`, or where it is "" the name alone, means; 0 for none."""
        return self.aliases.get(alias, 0) if alias else self.current


def fold(state: NameState, entries: Iterable[Entry]) -> NameState:
    """`state` after `entries`, each of which was judged and comes right after the one before."""
    for entry in entries:
        assert entry.number == state.number + 1
        history = (*state.history, _event(state, entry))
        state = msgspec.structs.replace(_after(state, entry.change), number=entry.number, history=history)
    return state


def _after(state: NameState, change: Change) -> NameState:
    match change:
        case Pushed(version=number):
            made = state.versions.get(number) or _made(change)
            state = msgspec.structs.replace(
                state, versions=state.versions | {number: made}, last=max(state.last, number)
            )
            return _moved(state, "", number, is_back=False)
        case Aliased(alias=alias, version=number):
            return _moved(state, alias, number, is_back=False)
        case RolledBack(alias=alias, version=number):
            return _moved(state, alias, number, is_back=True)
        case Removed(alias=alias) if alias:
            return msgspec.structs.replace(
                state, aliases=_without(state.aliases, alias), before=_without(state.before, alias)
            )
        case Removed(version=number) if number:
            before = {of: tuple(n for n in earlier if n != number) for of, earlier in state.before.items()}
            return msgspec.structs.replace(state, versions=_without(state.versions, number), before=before)
        case Removed():
            return NameState(name=state.name, last=state.last)


def _moved(state: NameState, alias: str, number: int, *, is_back: bool) -> NameState:
    """`alias`, "" for the current version, means `number`. Going back forgets what came after it."""
    was, earlier = state.meant_by(alias), state.before.get(alias, ())
    if is_back and number in earlier:
        earlier = earlier[: len(earlier) - 1 - earlier[::-1].index(number)]
    elif was not in (0, number):
        earlier = (*earlier, was)
    state = msgspec.structs.replace(state, before=state.before | {alias: earlier})
    if not alias:
        return msgspec.structs.replace(state, current=number)
    return msgspec.structs.replace(state, aliases=dict(sorted((state.aliases | {alias: number}).items())))


def _made(pushed: Pushed) -> Version:
    return Version(
        number=pushed.version,
        digest=pushed.digest,
        card=pushed.card,
        facts=pushed.facts,
        size_bytes=pushed.size_bytes,
        base=pushed.base,
        base_digest=pushed.base_digest,
        at=pushed.at,
        who=pushed.who,
    )


def _event(state: NameState, entry: Entry) -> Event:
    change = entry.change
    return Event(
        number=entry.number,
        at=change.at,
        who=change.who,
        change=str(change.__struct_config__.tag),
        what=_words(state, change),
        version=change.version,
        digest=change.digest if isinstance(change, Pushed) else "",
        note=change.note,
    )


def _words(state: NameState, change: Change) -> str:
    match change:
        case Pushed(version=number) if number in state.versions:
            return f"pushed version {number} again"
        case Pushed(version=number):
            on = f", an adapter of {change.base}" if change.base else ""
            return f"pushed version {number} ({change.digest[:12]}{on})"
        case Aliased(alias=alias, version=number):
            was = state.meant_by(alias)
            return f"{alias} means version {number}" + (f", was {was}" if was else "")
        case RolledBack(alias=alias, version=number):
            return f"rolled {alias or 'the current version'} back from {state.meant_by(alias)} to {number}"
        case Removed(alias=alias) if alias:
            return f"removed {alias}, which meant version {state.meant_by(alias)}"
        case Removed(version=number) if number:
            return f"removed version {number}"
        case Removed():
            return "removed the name with all its versions"


def _without(mapping: dict[_K, _V], key: _K) -> dict[_K, _V]:
    return {k: v for k, v in mapping.items() if k != key}
