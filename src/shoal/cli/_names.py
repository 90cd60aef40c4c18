"""Pushed names kept current in one process: what the registry says, what the board says, what was changed here.
And kept on the board, whoever put them there: its notes are lost with the queue server.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable

from shoal.catalog.ledger import NameState
from shoal.catalog.names import parse_name
from shoal.catalog.pushed import Pushed, note_of, noted
from shoal.catalog.registry import Registry
from shoal.observe import log as logs
from shoal.protocol.errors import ShoalError
from shoal.protocol.status import NodeStatus
from shoal.queue.board import Board

log = logging.getLogger("shoal")
ALONE_EVERY_S = 2.0
"""How often the registry is looked at where no board tells of changes."""
AMONG_OTHERS_EVERY_S = 20.0
LOOK_EVERY_S = 0.5
HEARD_WITHIN_S = 1.0
PATIENCE_S = 3.0
"""What the board lacks is put up after at most so long, so that not all do it at once."""


class Names:
    """`changed` is called after there was news. A reader of the board (queue.board.Reader)."""

    def __init__(
        self, pushed: Pushed, registry: Registry | None, board: Board | None, changed: Callable[[], None]
    ) -> None:
        self._pushed, self._registry, self._board, self._changed = pushed, registry, board, changed
        self._seen: dict[str, tuple[str, int]] = {}  # the era and the number of what was on the board
        self._lacking_since: float | None = None
        self._unreadable = ""
        self._next_look = 0.0

    async def tell(self, state: NameState) -> None:
        """It was changed here. Returns once the board has told it, or after HEARD_WITHIN_S: whoever asks for it
        then finds it known."""
        self._learn(state)
        if self._board is not None:
            self._put(state)
            until = time.monotonic() + HEARD_WITHIN_S
            while self._lacks(state) and time.monotonic() < until:
                await asyncio.sleep(0.005)

    async def look(self, name: str) -> bool:
        """Whether the registry knows of a name more than we did: somebody asks for it. Seldom, however often."""
        if self._registry is None or time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + LOOK_EVERY_S
        try:
            return self._learn(await self._registry.state(parse_name(name).name))
        except ShoalError as error:
            log.warning("a name cannot be looked up", extra=logs.fields(model=name, reason=error.message))
            return False

    def noted(self, key: str, note: bytes | None) -> None:
        state = noted(key, note)
        if state is None:
            return
        if self._board is not None:
            self._seen[state.name] = self._board.era, state.number
        self._learn(state)

    def told(self, status: NodeStatus) -> None:
        """Nothing of names."""

    async def read(self) -> None:
        """What the registry says now. Raises StorageUnavailable."""
        if self._registry is None:
            return
        news = [self._pushed.learn(state) for state in (await self._registry.names()).values()]
        if any(news):
            self._changed()

    async def run(self) -> None:
        """Until cancelled."""
        every_s = ALONE_EVERY_S if self._board is None else AMONG_OTHERS_EVERY_S
        next_read = time.monotonic() + every_s * random.uniform(0.5, 1)  # noqa: S311  # no secret
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if time.monotonic() >= next_read:
                await self._read_if_can()
                next_read = time.monotonic() + every_s
            self._keep_up()

    async def _read_if_can(self) -> None:
        try:
            await self.read()
            failure = ""
        except ShoalError as error:
            failure = error.message
        except Exception:
            log.exception("pushed names cannot be read")
            return
        if failure != self._unreadable:
            self._unreadable = failure
            told = logs.fields(reason=failure) if failure else {}
            log.warning("the object store cannot be read" if failure else "the object store is back", extra=told)

    def _learn(self, state: NameState) -> bool:
        is_news = self._pushed.learn(state)
        if is_news:
            self._changed()
        return is_news

    def _keep_up(self) -> None:
        """Put up what the board lacks, if nobody else has done so after a while."""
        if self._board is None or not self._board.era:
            return
        lacking = [state for state in self._pushed.states().values() if self._lacks(state)]
        if not lacking:
            self._lacking_since = None
        elif self._lacking_since is None:
            self._lacking_since = time.monotonic() + random.uniform(0, PATIENCE_S - 2 * LOOK_EVERY_S)  # noqa: S311
        elif time.monotonic() >= self._lacking_since:
            log.info("pushed names put up again", extra=logs.fields(names=len(lacking)))
            for state in lacking:
                self._put(state)
            self._lacking_since = None

    def _lacks(self, state: NameState) -> bool:
        assert self._board is not None
        era, number = self._seen.get(state.name, ("", 0))
        return era != self._board.era or number < state.number

    def _put(self, state: NameState) -> None:
        if self._board is not None:
            key, note = note_of(state)
            self._board.put(key, note, keep=False)


class Unserved:
    """Of a node that has no object store: what was pushed is for others, which is said once."""

    def __init__(self) -> None:
        self._is_said = False

    def noted(self, key: str, note: bytes | None) -> None:
        if not self._is_said and noted(key, note) is not None:
            self._is_said = True
            log.warning("pushed models are not served here: this node was started without `--objects`")

    def told(self, status: NodeStatus) -> None:
        """Nothing of names."""
