"""What a node has heard of the others in its pool: what they hold, and which loads they claimed. Reads no clock.

A claim is a note on the board. All nodes see the board's notes in the same order, so that of two claims for one
line all believe the first; a claim ends at its own time or when its node takes it down.
"""

import math
from collections.abc import Callable
from typing import Literal

import msgspec

from shoal.catalog.shared import name_in
from shoal.protocol.status import NodeStatus
from shoal.queue.fleet import Fleet

_PREFIX = "claim/"
_HOLDING = ("ready", "loading")
HEARD_AFTER_S = 1.5
SILENT_AFTER_S = 2.5
"""A node that missed two statuses is not waited for."""


class Claim(msgspec.Struct, frozen=True):
    """`at` and `until` are unix seconds, of the claiming node's clock."""

    node: str
    at: float
    until: float


def claim_key(line: str, node: str) -> str:
    return f"{_PREFIX}{node}/{line}"


class Peers:
    """`node` is this one's own name; "" for a node that is alone."""

    def __init__(self, node: str = "", listening_s: Callable[[], float] = lambda: math.inf) -> None:
        self.node = node
        self._listening_s = listening_s
        self._fleet = Fleet(SILENT_AFTER_S, listening_s)
        self._claims: dict[str, Claim] = {}
        self._offered: set[str] = set()
        self.own_busy = 0.0
        """Share of this node's devices' time over the last seconds, as it told."""

    def told(self, status: NodeStatus, now: float) -> None:
        if status.node != self.node:
            self._fleet.told(status, now)
        else:
            self.own_busy = _busy(status)

    def noted(self, key: str, note: bytes | None) -> tuple[Literal["won", "lost"], str] | None:
        """What became of our claim to a line, where the note is one."""
        if (model := name_in(key)) is not None:
            (self._offered.discard if note is None else self._offered.add)(model)
        if not key.startswith(_PREFIX):
            return None
        node, _, line = key.removeprefix(_PREFIX).partition("/")
        standing = self._claims.get(line)
        if note is None:
            if standing is not None and standing.node == node:
                del self._claims[line]
            return None
        try:
            claim = msgspec.json.decode(note, type=Claim)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        has_won = standing is None or standing.node == claim.node or standing.until <= claim.at
        if has_won:
            self._claims[line] = claim
        if claim.node != self.node:
            return None
        return ("won" if has_won else "lost"), line

    def offers(self, line: str) -> bool:
        """Whether some node's store holds the line's model: our own as well, until we take our note down."""
        return line in self._offered or line.rpartition(":")[0] in self._offered

    @property
    def are_known(self) -> bool:
        """Whether all would have been heard by now: each tells of itself once a second."""
        return self._listening_s() > HEARD_AFTER_S

    def count(self, now: float) -> int:
        """Other nodes that take work."""
        return sum(not status.draining for status in self._fleet.nodes(now))

    def with_objects(self, now: float) -> int:
        """Other nodes that take work and serve what was pushed."""
        return sum(bool(status.objects) and not status.draining for status in self._fleet.nodes(now))

    def holders(self, line: str, now: float) -> int:
        """Other nodes that hold the line's model in memory, or soon will."""
        return len(self._holders(line, now))

    def _holders(self, line: str, now: float) -> list[NodeStatus]:
        return [status for status in self._fleet.nodes(now) if not status.draining and _holds(status, line)]

    def least_busy_holder(self, line: str, now: float) -> float:
        """Share of its devices' time over the last seconds; 1 where there is no holder."""
        return min(map(_busy, self._holders(line, now)), default=1.0)

    def waited_s(self, line: str, now: float) -> float:
        """How long jobs lately waited for those that hold it."""
        waits = [holder.lines[line].wait_s for holder in self._holders(line, now) if line in holder.lines]
        return max(waits, default=0.0)

    def devices(self, now: float) -> int:
        """Of the other nodes."""
        return sum(status.places for status in self._fleet.nodes(now) if not status.draining)

    def loading(self, now: float) -> int:
        """Models that they load."""
        statuses = self._fleet.nodes(now)
        return sum(model.state == "loading" for status in statuses for model in status.models.values())

    def is_claimed(self, line: str, now: float) -> bool:
        """Whether another node is about to load it."""
        claim = self._claims.get(line)
        return claim is not None and claim.node != self.node and now < claim.until


def _busy(status: NodeStatus) -> float:
    return sum(line.busy_share for line in status.lines.values()) / status.places


def _holds(status: NodeStatus, line: str) -> bool:
    held = status.models.get(line)
    return held is not None and held.state in _HOLDING
