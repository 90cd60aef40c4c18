"""What pushed names mean just now: learned from the registry or from notes on the board, whichever is newer, and
asked by every catalog before its own models. `name` is the current version, `name@3` a version, `name@prod` an
alias.

    pushed/<name>   the note: a name's state, without its history, and without old versions where they are too many

Knows states by number; a lower one is old. Does not know who told, nor whether files are here.
"""

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from shoal.catalog import Model
from shoal.catalog.ledger import NameState, Version
from shoal.catalog.names import Asked
from shoal.observe import log as logs
from shoal.protocol.errors import ModelNotFound

log = logging.getLogger("shoal.catalog")
_PREFIX = "pushed/"
MOST_NOTE_BYTES = 400_000
"""A queue server takes messages of 1 MB at least."""
LEAVES_AFTER_S = 120.0
"""What was asked of a version before it was removed is still computed with it."""


def note_of(state: NameState) -> tuple[str, bytes]:
    """The key and the note under which a name's state is put up."""
    meant = {state.current, *state.aliases.values()}
    versions = {number: state.versions[number] for number in sorted(state.versions, key=lambda n: (n in meant, n))}
    note = _encoded(state, versions)
    while len(note) > MOST_NOTE_BYTES and len(versions) > len(meant):
        for number in list(versions)[: max(1, (len(versions) - len(meant)) // 4)]:
            del versions[number]
        note = _encoded(state, versions)
    return f"{_PREFIX}{state.name}", note


def _encoded(state: NameState, versions: dict[int, Version]) -> bytes:
    short = msgspec.structs.replace(state, versions=versions, history=(), before={})
    return msgspec.json.encode(short)


def noted(key: str, note: bytes | None) -> NameState | None:
    """What a note says; None for one about something else, or that cannot be read, which is logged."""
    if not key.startswith(_PREFIX) or note is None:
        return None
    try:
        return msgspec.json.decode(note, type=NameState)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        name = key.removeprefix(_PREFIX)
        log.warning("a pushed model's note cannot be read", extra=logs.fields(model=name, reason=str(error)))
        return None


class Pushed:
    """`folder_of` says where the files of a digest stand, or will once they were fetched."""

    def __init__(
        self, folder_of: Callable[[str], Path] = Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder_of, self._clock = folder_of, clock
        self._states: dict[str, NameState] = {}
        self._named: dict[str, Model] = {}  # by each word that it can be asked for
        self._leaving: dict[str, tuple[Model, float]] = {}  # removed, by what nodes call it, and until when
        self._current: dict[str, Model] | None = None

    def learn(self, state: NameState) -> bool:
        """Whether it is news. Of a number that is known, it is where it says more than a note had room for."""
        old = self._states.get(state.name)
        if old is not None and (old.number, len(old.versions)) >= (state.number, len(state.versions)):
            return False
        if old is not None:
            for word, model in _words(old, self._folder_of):
                self._named.pop(word, None)
                self._leaving[model.name] = model, self._clock() + LEAVES_AFTER_S
        self._states[state.name] = state
        for word, model in _words(state, self._folder_of):
            self._named[word] = model
            self._leaving.pop(model.name, None)
        self._current = None
        return True

    def states(self) -> dict[str, NameState]:
        """By name; also of names that were removed."""
        return self._states

    def models(self) -> dict[str, Model]:
        """Each name's current version, sorted by name."""
        if self._current is None:
            named = ((name, self._named.get(name)) for name in sorted(self._states))
            self._current = {name: model for name, model in named if model is not None}
        return self._current

    def to_know(self) -> dict[str, Model]:
        """What a node takes up before anybody asks, by what nodes call it: versions that names and aliases mean;
        of adapters all, also those that were removed a moment ago."""
        now = self._clock()
        meant = [m for word, m in self._named.items() if m.card.base or not word.endswith(f"@{m.version}")]
        leaving = [m for m, until in self._leaving.values() if m.card.base and now < until]
        return {model.name: model for model in (*leaving, *meant)}

    def find(self, asked: Asked) -> Model | None:
        """The version that is asked for; None where nobody pushed that name. Says nothing of the variant. Raises
        ModelNotFound, naming what there is, where the name has no such version or alias."""
        word = f"@{asked.version}" if asked.version else ""
        for name in (asked.name, asked.name.replace("__", "/", 1)):
            if (model := self._named.get(name + word)) is not None:
                return model
            if name in self._named:
                raise _no_such_version(self._states[name], asked.version)
        return None

    def version(self, name: str) -> Model | None:
        """By what nodes call it, `name@3`; also one that was removed a moment ago."""
        if (model := self._named.get(name)) is not None and model.name == name:
            return model
        model, until = self._leaving.get(name, (None, 0.0))
        if model is not None and until < self._clock():
            del self._leaving[name]
            return None
        return model

    def digests(self) -> set[str]:
        """Those of all versions that can be asked for."""
        return {model.digest for model in self._named.values()}


def _words(state: NameState, folder_of: Callable[[str], Path]) -> Iterator[tuple[str, Model]]:
    """Each word that means one of its versions, and that version as it is called by it."""
    meant = {"": state.current} | {f"@{number}": number for number in state.versions}
    meant |= {f"@{alias}": number for alias, number in state.aliases.items()}
    for word, number in meant.items():
        if number in state.versions:
            version = state.versions[number]
            yield state.name + word, _model(state.name, version, folder_of(version.digest), state.name + word)


def _model(name: str, version: Version, folder: Path, called: str) -> Model:
    card = msgspec.structs.replace(version.card, name=name, base=version.base, default=False)
    return Model(
        card=card, facts=version.facts, folder=folder, digest=version.digest, size_bytes=version.size_bytes,
        version=version.number, called=called, base_digest=version.base_digest,
    )  # fmt: skip


def _no_such_version(state: NameState, asked: str) -> ModelNotFound:
    numbers, aliases = sorted(state.versions), sorted(state.aliases)
    there = ", ".join(f"@{word}" for word in (*numbers[-5:], *aliases[:20]))
    return ModelNotFound(
        f"{state.name} has no version or alias {asked[:100]!r}; it has {there}", versions=numbers, aliases=aliases
    )
