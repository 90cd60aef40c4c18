"""The ledger of pushed names in the object store: one entry each change, created and never changed, so that of two
who write the next one exactly one succeeds, on every kind of store.

    ledger/<slug of the name>/<number>.json

What follows from entries is ledger.py's, which of them may be written verdicts.py's.
"""

import asyncio
import logging
import random
import re
import secrets
from collections.abc import Callable

import msgspec

from shoal.catalog.abreast import abreast
from shoal.catalog.ledger import Change, Entry, NameState, Pushed, fold
from shoal.catalog.names import slug
from shoal.catalog.objects import NotThere, Objects
from shoal.catalog.verdicts import judge
from shoal.observe import log as logs
from shoal.protocol.errors import Conflict, InternalError, StorageUnavailable

log = logging.getLogger("shoal.catalog")
LEDGER = "ledger/"
_KEY = re.compile(rf"{LEDGER}([^/]+)/(\d{{8}})\.json")
_TRIES = 100
_AT_ONCE = 16
_WAIT_S = 0.05


class Entries:
    """States are kept, and only what was added since is read."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._states: dict[str, NameState] = {}
        self.unreadable: dict[str, str] = {}
        """Why, of the names that the last `names` left out."""

    async def names(self) -> dict[str, NameState]:
        """See Registry.names. A ledger that cannot be read is left out, and logged."""
        known = {name: state.number for name, state in self._states.items()}
        numbers = dict.fromkeys(known, 0) | await self._numbers(LEDGER)
        unreadable: dict[str, str] = {}

        async def read(name: str) -> NameState | None:
            try:
                return await self._read(name, numbers[name], known.get(name, 0))
            except InternalError as error:
                unreadable[name] = error.message
                if self.unreadable.get(name) != error.message:
                    log.warning(
                        "a name's ledger cannot be read", extra=logs.fields(model=name, reason=error.message)
                    )
                return None

        states = await abreast(_AT_ONCE, read, sorted(numbers))
        self.unreadable = unreadable
        return {state.name: state for state in states if state is not None}

    async def state(self, name: str) -> NameState:
        """See Registry.state. Raises InternalError for a ledger that cannot be read."""
        state = self._states.get(name)
        known = state.number if state is not None else 0
        return await self._read(name, (await self._numbers(_folder(name))).get(name, 0), known)

    async def append(
        self, name: str, change: Change, since: int | None, taken: Callable[[str], bool]
    ) -> NameState:
        """See Registry.append."""
        mark = secrets.token_hex(8)
        for attempt in range(_TRIES):
            state = await self.state(name)
            since = state.number if since is None else since
            if isinstance(change, Pushed):
                _check_overtaken(state, change, since)
                await self._check_capitals(state)
            judged = judge(state, change, taken=taken(name))
            if judged is None:
                return state
            entry = Entry(number=state.number + 1, change=judged, mark=mark)
            if await self._written(name, entry):
                return self._keep(fold(state, [entry]))
            await asyncio.sleep(random.uniform(0, _WAIT_S * min(attempt + 1, 10)))  # noqa: S311  # no secret
        raise Conflict(f"{name} was changed by others {_TRIES} times meanwhile; ask again", model=name)

    async def _numbers(self, prefix: str) -> dict[str, int]:
        """The number of each name's last entry, by one look at the store. What else lies there is none of ours."""
        numbers: dict[str, int] = {}
        for key in await self._objects.keys(prefix):
            if named := _KEY.fullmatch(key):
                name = named[1].replace("__", "/")
                numbers[name] = max(numbers.get(name, 0), int(named[2]))
        return numbers

    async def _written(self, name: str, entry: Entry) -> bool:
        """Also where the store has written it and we did not hear so, or asked again: a rollback that its client
        tries once more would go back twice."""
        key, data = f"{_folder(name)}{entry.number:08}.json", msgspec.json.encode(entry)
        try:
            is_written = await self._objects.create(key, data)
        except StorageUnavailable:
            if await self._holds(key, data):
                return True
            raise
        return is_written or await self._holds(key, data)

    async def _holds(self, key: str, data: bytes) -> bool:
        try:
            return await self._objects.get(key) == data
        except NotThere:
            return False

    async def _read(self, name: str, number: int, known: int) -> NameState:
        """The state after `number` entries, or more. `known` were there before anybody looked for that: where some
        are lost, one that is added would have a gap before it."""
        if number < known:
            raise InternalError(
                f"the ledger of {name} had {known} entries and has {number}: the object store has lost them, or "
                "is not the one that it was",
                model=name,
            )
        state = self._states.get(name) or NameState(name=name)

        async def entry(at: int) -> Entry:
            return await self._entry(name, at)

        entries = await abreast(_AT_ONCE, entry, range(state.number + 1, number + 1))
        return self._keep(fold(state, entries)) if entries else state

    async def _entry(self, name: str, number: int) -> Entry:
        try:
            data = await self._objects.get(f"{_folder(name)}{number:08}.json")
            entry = msgspec.json.decode(data, type=Entry)
        except (NotThere, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InternalError(
                f"entry {number} of the ledger of {name} is lost, damaged, or of a newer release: {error}",
                model=name,
            ) from error
        if entry.number != number:
            raise InternalError(
                f"entry {number} of the ledger of {name} says that it is {entry.number}", model=name
            )
        return entry

    def _keep(self, state: NameState) -> NameState:
        """Of several who read at once the one who read most."""
        kept = self._states.get(state.name)
        if kept is None or kept.number < state.number:
            self._states[state.name] = state
        return state

    async def _check_capitals(self, state: NameState) -> None:
        """Two names that differ in capitals only would be mistaken for each other, by people and by some disks."""
        if state.number:
            return
        others = await self._numbers(LEDGER)
        others.pop(state.name, None)  # somebody was quicker
        folded = state.name.casefold()
        if near := next((other for other in sorted(others) if other.casefold() == folded), ""):
            raise Conflict(f"{state.name} would be mistaken for {near}, which was pushed before", model=near)


def _check_overtaken(state: NameState, change: Pushed, since: int) -> None:
    """Raises Conflict where something else than `change` was pushed after the state of number `since`."""
    others = [event for event in state.history if event.number > since and event.digest not in ("", change.digest)]
    if others:
        raise Conflict(
            f"{state.name} was pushed meanwhile ({others[-1].who or 'by another'}), as version "
            f"{others[-1].version}; look at that, and push again if yours is to follow it",
            model=state.name,
            version=others[-1].version,
        )


def _folder(name: str) -> str:
    return f"{LEDGER}{slug(name)}/"
