"""Which models may stay in memory when another wants in. Pure."""

from collections.abc import Sequence
from typing import Literal

import msgspec

MIN_RESIDENCY_S = 5.0
TRAFFIC_S = 60.0
LAST_COUNTS = 10.0
"""How much more is lost with the last replica of a model that has traffic than with one of several."""


class Resident(msgspec.Struct, frozen=True):
    """A replica that takes memory now. `busy`: it has work in flight or waiting, or is still loading.

    `is_last`: no other node or device holds the model.
    """

    name: str
    size_bytes: int
    busy: bool
    pinned: bool
    loaded_at: float
    last_used: float
    reload_s: float = 1.0
    is_last: bool = False


class Plan(msgspec.Struct, frozen=True):
    """`load`: evict these, then load. `wait`: not now; ask again when something changed or at `until`.
    `refuse`: it can never fit beside what is pinned."""

    verdict: Literal["load", "wait", "refuse"]
    evict: tuple[str, ...] = ()
    until: float | None = None


def plan(needed_bytes: int, budget_bytes: int, residents: Sequence[Resident], now: float) -> Plan:
    """Make room for a model of `needed_bytes`.

    1. It fits: load.
    2. It would not fit even with everything evicted that is not pinned: refuse.
    3. Evict idle ones that have been here long enough, those cheapest to lose per byte first
       (reload cost × likelihood of use, the latter by how lately it was used), as few as needed.
    4. Not enough can go now: wait.
    """
    free = budget_bytes - sum(resident.size_bytes for resident in residents)
    if needed_bytes <= free:
        return Plan("load")  # 1
    pinned = sum(resident.size_bytes for resident in residents if resident.pinned)
    if needed_bytes > budget_bytes - pinned:
        return Plan("refuse")  # 2
    idle = [r for r in residents if not r.pinned and not r.busy]
    settled = [r for r in idle if now - r.loaded_at >= MIN_RESIDENCY_S]
    evict: list[str] = []
    for resident in sorted(settled, key=lambda r: _loss_per_byte(r, now)):  # 3
        evict.append(resident.name)
        free += resident.size_bytes
        if needed_bytes <= free:
            return Plan("load", tuple(evict))
    young = [r.loaded_at + MIN_RESIDENCY_S for r in idle if r not in settled]
    return Plan("wait", until=min(young, default=None))  # 4


def _loss_per_byte(resident: Resident, now: float) -> float:
    idle_s = max(0.0, now - resident.last_used)
    weight = LAST_COUNTS if resident.is_last and idle_s < TRAFFIC_S else 1.0
    return weight * resident.reload_s / (1.0 + idle_s) / max(1, resident.size_bytes)
