"""What the replicas of one node take of its memory, put as questions to `residency`. Reads replicas only."""

from collections.abc import Mapping

from shoal.node import residency
from shoal.node.replica import Replica
from shoal.protocol.errors import ModelLoadFailed, ShoalError, over_limit

MAX_WAIT_S = 10.0
"""A model that has waited this long for memory takes it from one that is never idle by itself."""


class Memory:
    def __init__(self, budget_bytes: int, replicas: Mapping[str, Replica]) -> None:
        self._budget = budget_bytes
        self._replicas = replicas

    def room_for(self, replica: Replica, now: float) -> residency.Plan:
        """Room made by idle models; where it has waited too long, by busy ones too."""
        needed = self._needed(replica)
        plan = self._plan(needed, now, busy_too=False)
        if plan.verdict == "wait" and replica.waiting and now - replica.waiting.oldest > MAX_WAIT_S:
            return self._plan(needed, now, busy_too=True)
        return plan

    def overflow(self, now: float) -> tuple[str, ...]:
        """Idle models that have to go because footprints grew past the budget."""
        return self._plan(0, now, busy_too=False).evict

    def too_big(self, replica: Replica) -> ShoalError:
        """For good, as long as the server runs: what is pinned stays, so nobody is told to come back."""
        pinned = self._pinned_bytes(replica) / 1e6
        error = over_limit(
            ModelLoadFailed, f"{replica.model.name} beside what is pinned ({pinned:.0f} MB)",
            seen=round(self._needed(replica) / 1e6), limit=self._budget / 1e6, setting="--memory", unit="MB",
        )  # fmt: skip
        error.detail |= {"error_class": "OverBudget", "attempts": 0, "permanent": True}
        return error

    def _needed(self, replica: Replica) -> int:
        """Bytes to make room for. A guess refuses nothing that the files alone would leave room for: at most it
        asks for all that is not pinned."""
        if replica.known.footprint_bytes:
            return replica.size_bytes
        return max(replica.model.size_bytes, min(replica.size_bytes, self._budget - self._pinned_bytes(replica)))

    def _pinned_bytes(self, but: Replica) -> int:
        others = [r for r in self._replicas.values() if r.pinned and r.status != "absent" and r is not but]
        return sum(replica.size_bytes for replica in others)

    def _plan(self, needed_bytes: int, now: float, busy_too: bool) -> residency.Plan:
        residents = [_resident(r, busy_too) for r in self._replicas.values() if r.status != "absent"]
        return residency.plan(needed_bytes, self._budget, residents, now)


def _resident(replica: Replica, busy_too: bool) -> residency.Resident:
    busy = replica.status != "ready" or (replica.busy and not busy_too)
    return residency.Resident(
        replica.model.name, replica.size_bytes, busy, replica.pinned,
        replica.loaded_at, replica.last_used, replica.known.load_s,
    )  # fmt: skip
