"""What the replicas of one node take of its memory, put as questions to `residency`. Reads replicas only."""

from collections.abc import Mapping

from shoal.node import residency
from shoal.node.line import Line
from shoal.node.peers import Peers
from shoal.node.replica import Replica
from shoal.protocol import sizes
from shoal.protocol.errors import ModelLoadFailed, ShoalError, over_limit

MAX_WAIT_S = 10.0
"""A model that has waited this long for memory takes it from one that is never idle by itself."""


class Memory:
    def __init__(self, budget_bytes: int, lines: Mapping[str, Line], peers: Peers) -> None:
        self._budget = budget_bytes
        self._peers = peers
        self._lines = lines

    def room_for(self, line: Line, now: float) -> residency.Plan:
        """Room for one replica, made by idle ones; where the line has waited too long, by busy ones too."""
        needed = self._needed(line)
        plan = self._plan(needed, now, busy_too=False)
        starves = not line.replicas and line.waiting and now - line.waiting.oldest > MAX_WAIT_S
        if plan.verdict == "wait" and starves:
            return self._plan(needed, now, busy_too=True)
        return plan

    def overflow(self, now: float) -> tuple[str, ...]:
        """Idle replicas, by name, that have to go because footprints grew past the budget."""
        return self._plan(0, now, busy_too=False).evict

    def too_big(self, line: Line) -> ShoalError:
        """For good, as long as the server runs: what is pinned stays, so nobody is told to come back."""
        pinned = sizes.in_words(self._pinned_bytes(line))
        error = over_limit(
            ModelLoadFailed, f"{line.model.name} beside what is pinned ({pinned})",
            seen=self._needed(line), limit=self._budget, setting="--memory", written=sizes.in_words,
        )  # fmt: skip
        error.detail |= {"error_class": "OverBudget", "attempts": 0, "permanent": True}
        return error

    def _needed(self, line: Line) -> int:
        """Bytes to make room for. A guess refuses nothing that the files alone would leave room for: at most it
        asks for all that is not pinned."""
        if line.known.footprint_bytes:
            return line.size_bytes
        return max(line.model.size_bytes, min(line.size_bytes, self._budget - self._pinned_bytes(line)))

    def _pinned_bytes(self, but: Line) -> int:
        others = [line for line in self._lines.values() if line.pinned and line is not but]
        return sum(line.size_bytes * len(line.replicas) for line in others)

    def _plan(self, needed_bytes: int, now: float, busy_too: bool) -> residency.Plan:
        residents = [self._resident(r, busy_too, now) for line in self._lines.values() for r in line.replicas]
        return residency.plan(needed_bytes, self._budget, residents, now)

    def _resident(self, replica: Replica, busy_too: bool, now: float) -> residency.Resident:
        line = replica.line
        is_only = len(line.replicas) == 1
        # What waits is the line's: that of which there is but one replica is waited for.
        is_wanted = bool(line.waiting or line.suspects) and is_only
        return residency.Resident(
            name=replica.name,
            size_bytes=line.size_bytes,
            busy=replica.status != "ready" or ((replica.busy or is_wanted) and not busy_too),
            pinned=line.pinned,
            loaded_at=replica.loaded_at,
            last_used=replica.last_used,
            reload_s=line.known.load_s,
            is_last=is_only and not self._peers.holders(line.model.name, now),
        )
