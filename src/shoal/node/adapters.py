"""The LoRA adapters of one replica: which it holds, which it is taking, which may go when another wants in. Pure.

Adapters are named by their digest, and admitted by their bytes.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import msgspec

from shoal.protocol.errors import ShoalError
from shoal.protocol.status import MOST_ADAPTERS_TOLD, AdapterState

MIN_RESIDENCY_S = 1.0
"""As residency's of models. Taking an adapter lasts tens of milliseconds: by this it is a few percent of all."""
MAX_WAIT_S = 2.0
"""One that was waited for so long takes the place of others that are never idle by themselves."""


class Failure(msgspec.Struct, frozen=True):
    """Why an adapter cannot be had, and until when it is not tried again."""

    name: str
    error: ShoalError
    until: float


class Held(msgspec.Struct):
    """`size_bytes` as its replica said. A closed one gets no more windows, and goes when none is in flight."""

    name: str
    size_bytes: int
    taken_at: float
    last_used: float
    closed: bool = False


class Coming(msgspec.Struct):
    """On its way; how large it will be is a guess from its files. `told_at` is when its replica was told to take
    it: its files may have to be fetched before, which says nothing of the replica."""

    name: str
    size_bytes: int
    told_at: float = 0.0


class Shelf:
    """State of one replica; it goes with its process."""

    def __init__(self) -> None:
        self.held: dict[str, Held] = {}
        self.coming: dict[str, Coming] = {}

    @property
    def size_bytes(self) -> int:
        """What is coming included."""
        held = sum(held.size_bytes for held in self.held.values())
        return held + sum(coming.size_bytes for coming in self.coming.values())

    def can(self, digest: str) -> bool:
        """Whether items that need this adapter may be sent: "" is none."""
        if not digest:
            return True
        held = self.held.get(digest)
        return held is not None and not held.closed

    def has(self, digest: str) -> bool:
        """Whether it can be computed with here, or will be in a moment."""
        return self.can(digest) or digest in self.coming

    def expect(self, digest: str, name: str, size_bytes: int) -> None:
        self.coming[digest] = Coming(name, size_bytes)

    def took(self, digest: str, size_bytes: int, now: float) -> None:
        coming = self.coming.pop(digest)
        self.held[digest] = Held(coming.name, size_bytes, now, now)

    def used(self, digests: Collection[str], now: float) -> None:
        for digest in digests:
            if digest:
                self.held[digest].last_used = now


class Plan(msgspec.Struct, frozen=True):
    """`take` it, once those in `drop` are let go. `wait`: not now, ask again when something changed or at `until`;
    those in `close` are to get no more work. `refuse`: it is larger than all adapters may be."""

    verdict: Literal["take", "wait", "refuse"]
    drop: tuple[str, ...] = ()
    close: tuple[str, ...] = ()
    until: float | None = None


def plan(
    size_bytes: int,
    budget_bytes: int,
    shelf: Shelf,
    *,
    flying: Collection[str],
    wanted: Collection[str],
    waited_s: float,
    now: float,
) -> Plan:
    """Make room for an adapter of that size. `flying` are those with items at the replica, `wanted` those with
    items that wait for it.

    1. It is larger than the budget: refuse.
    2. It fits beside those that are here and coming: take.
    3. Let go of idle ones that have been here long enough, the least recently used first, as few as needed.
    4. It was waited for too long: busy ones are closed, those first that were here longest.
    5. Wait; until one is here long enough, where that is what it takes.
    """
    if size_bytes > budget_bytes:
        return Plan("refuse")  # 1
    free = budget_bytes - shelf.size_bytes
    if size_bytes <= free:
        return Plan("take")  # 2
    idle = {d: held for d, held in shelf.held.items() if d not in flying and (held.closed or d not in wanted)}
    settled = [d for d, held in idle.items() if held.closed or now - held.taken_at >= MIN_RESIDENCY_S]
    drop: list[str] = []
    for digest in sorted(settled, key=lambda d: idle[d].last_used):  # 3
        drop.append(digest)
        free += idle[digest].size_bytes
        if size_bytes <= free:
            return Plan("take", tuple(drop))
    young = [held.taken_at + MIN_RESIDENCY_S for digest, held in idle.items() if digest not in settled]
    if waited_s < MAX_WAIT_S:
        return Plan("wait", until=min([*young, now + MAX_WAIT_S - waited_s]))  # 5
    close: list[str] = []
    busy = {digest: held for digest, held in shelf.held.items() if digest not in settled}
    free += sum(held.size_bytes for held in busy.values() if held.closed)
    for digest in sorted(busy, key=lambda d: busy[d].taken_at):  # 4
        if size_bytes <= free:
            break
        if not busy[digest].closed and now - busy[digest].taken_at >= MIN_RESIDENCY_S:
            close.append(digest)
            free += busy[digest].size_bytes
    return Plan("wait", close=tuple(close), until=now + MIN_RESIDENCY_S)


def states_of(shelves: Sequence[Shelf], failures: Iterable[Failure], now: float) -> dict[str, AdapterState]:
    """What to tell of a model's adapters, by name: where a replica has one, it is ready."""
    held = {held.name: held.last_used for shelf in shelves for held in shelf.held.values()}
    last = sorted(held, key=held.__getitem__)[-MOST_ADAPTERS_TOLD:]
    found: dict[str, AdapterState] = {one.name: "failed" for one in failures if now < one.until}
    found |= {coming.name: "loading" for shelf in shelves for coming in shelf.coming.values()}
    return found | dict.fromkeys(last, "ready")


def overflow(budget_bytes: int, shelf: Shelf, *, flying: Collection[str], wanted: Collection[str]) -> list[str]:
    """Idle ones to let go of because what is here turned out to be larger than was thought, and those that are
    closed and done with."""
    gone = [d for d, held in shelf.held.items() if held.closed and d not in flying]
    over = shelf.size_bytes - budget_bytes - sum(shelf.held[digest].size_bytes for digest in gone)
    idle = [d for d in shelf.held if d not in flying and d not in wanted and d not in gone]
    for digest in sorted(idle, key=lambda d: shelf.held[d].last_used):
        if over <= 0:
            break
        gone.append(digest)
        over -= shelf.held[digest].size_bytes
    return gone
