"""Which changes of a pushed name may be made, and what they come to: asked before an entry is written. Pure."""

import re

import msgspec

from shoal.catalog.ledger import Aliased, Change, NameState, Pushed, Removed, RolledBack
from shoal.protocol.errors import Conflict, InvalidInput, ModelNotFound

MAX_VERSIONS = 1000
MAX_ALIASES = 50
MAX_NOTE_CHARACTERS = 1000
_ALIAS = re.compile(r"[a-z](?:[a-z0-9._-]{0,62}[a-z0-9])?")
_RESERVED = ("current", "latest")


def judge(state: NameState, change: Change, *, taken: bool = False) -> Change | None:
    """The change as it is to be written, with its version; None where it changes nothing.

    `taken`: the name is that of a model that was not pushed. Raises Conflict where the state forbids the change,
    InvalidInput where nothing would allow it, ModelNotFound for what is not there.
    """
    if len(change.note) > MAX_NOTE_CHARACTERS:
        raise InvalidInput(f"a note has at most {MAX_NOTE_CHARACTERS} characters, this one {len(change.note)}")
    if isinstance(change, Pushed):
        return _pushed(state, change, taken)
    if not state.is_there:
        was = "was removed" if state.number else "was never pushed"
        raise ModelNotFound(f"{state.name} {was}: there is nothing to change", model=state.name)
    match change:
        case Aliased():
            return _aliased(state, change)
        case RolledBack():
            return _rolled_back(state, change)
        case Removed():
            return _removed(state, change)


def check_alias(alias: str) -> str:
    """`alias` as it is. Raises InvalidInput where no alias may be called so."""
    if alias in _RESERVED:
        raise InvalidInput(f"{alias!r} cannot be an alias: a name alone means its current version")
    if not _ALIAS.fullmatch(alias):
        raise InvalidInput(
            f"{alias!r} cannot be an alias: it begins with a small letter and has up to 64 small letters, digits, "
            "`.`, `_` and `-`; numbers are versions"
        )
    return alias


def _pushed(state: NameState, change: Pushed, taken: bool) -> Pushed | None:
    """1. Somebody else's name. 2. The version that is current, of which there may be more to say. 3. An earlier
    one. 4. A new one."""
    if change.card.name != state.name or change.base == state.name:
        raise InvalidInput(f"a card of {change.card.name} on {change.base or 'nothing'} cannot be {state.name}")
    if taken:  # 1
        raise Conflict(
            f"{state.name} is the name of a model that was added on a machine, not pushed; take another name",
            model=state.name,
        )
    same = [number for number, version in state.versions.items() if _is_same(change, version)]
    if state.current in same:  # 2
        is_said = not change.note or change.note == _last_note(state, state.current)
        return None if is_said else msgspec.structs.replace(change, version=state.current)
    if same:  # 3
        return msgspec.structs.replace(change, version=max(same))
    if len(state.versions) >= MAX_VERSIONS:  # 4
        raise Conflict(
            f"{state.name} has {len(state.versions)} versions, and may have {MAX_VERSIONS}; remove some that "
            f"nobody uses (`shoal rm {state.name}@1`)"
        )
    return msgspec.structs.replace(change, version=state.last + 1)


def _last_note(state: NameState, number: int) -> str:
    """Of the last push that came to this version."""
    notes = [event.note for event in state.history if event.change == "pushed" and event.version == number]
    return notes[-1] if notes else ""


def _is_same(change: Pushed, version: object) -> bool:
    """The same bytes on the same base, as it was then."""
    of = ("digest", "base", "base_digest")
    return all(getattr(change, name) == getattr(version, name) for name in of)


def _aliased(state: NameState, change: Aliased) -> Aliased | None:
    check_alias(change.alias)
    number = _version(state, change.version or state.current)
    if change.alias not in state.aliases and len(state.aliases) >= MAX_ALIASES:
        raise Conflict(f"{state.name} has {len(state.aliases)} aliases, and may have {MAX_ALIASES}; remove some")
    is_so = state.meant_by(change.alias) == number
    return None if is_so else msgspec.structs.replace(change, version=number)


def _rolled_back(state: NameState, change: RolledBack) -> RolledBack | None:
    what = f"{state.name}@{change.alias}" if change.alias else state.name
    if change.alias:
        _alias(state, change.alias)
    was = state.meant_by(change.alias)
    if change.version:
        number = _version(state, change.version)
        return None if number == was else change
    earlier = [number for number in state.before.get(change.alias, ()) if number != was]
    if not earlier:
        raise Conflict(f"{what} is at version {was}, and there is none before it to go back to", version=was)
    return msgspec.structs.replace(change, version=earlier[-1])


def _removed(state: NameState, change: Removed) -> Removed:
    if change.alias and change.version:
        raise InvalidInput("one version or one alias is removed at a time")
    if change.alias:
        _alias(state, change.alias)
    if change.version:
        number = _version(state, change.version)
        users = [alias for alias, of in state.aliases.items() if of == number]
        if number == state.current:
            raise Conflict(
                f"version {number} is what {state.name} means; push or roll back to another first, or remove the "
                f"whole name (`shoal rm {state.name}`)"
            )
        if users:
            raise Conflict(
                f"version {number} is what {state.name}@{users[0]} means; move or remove the alias first"
            )
    return change


def _alias(state: NameState, alias: str) -> None:
    if alias not in state.aliases:
        known = ", ".join(state.aliases) or "no aliases at all"
        raise ModelNotFound(f"{state.name} has no alias {alias!r}; it has {known}", model=state.name)


def _version(state: NameState, number: int) -> int:
    if number not in state.versions:
        known = ", ".join(map(str, sorted(state.versions)[-5:]))
        raise ModelNotFound(f"{state.name} has no version {number}; the newest are {known}", model=state.name)
    return number
