"""The nodes of a cluster as they last told of themselves. Pure: statuses and the time in, answers out.

Gateways read it for listings and readiness, nodes to see what others hold. A node that is silent is forgotten, but
not while nobody could be heard.
"""

import math
from collections.abc import Callable

from shoal.protocol.status import AdapterState, ModelStatus, NodeStatus

SILENT_AFTER_S = 5.0
_ORDER = ("ready", "loading", "stopping", "failed", "absent")


class Fleet:
    def __init__(
        self, silent_after_s: float = SILENT_AFTER_S, listening_s: Callable[[], float] = lambda: math.inf
    ) -> None:
        """`listening_s`: for how long now one would have been heard (queue.board.Board)."""
        self._silent_after_s, self._listening_s = silent_after_s, listening_s
        self._last: dict[str, tuple[NodeStatus, float]] = {}

    def told(self, status: NodeStatus, now: float) -> None:
        """`now` is of the reader's own clock, which need not be that of the node."""
        self._last[status.node] = status, now

    def nodes(self, now: float) -> list[NodeStatus]:
        """Those that were heard lately, by name."""
        if self._listening_s() > self._silent_after_s:
            gone = [node for node, (_, heard) in self._last.items() if now - heard > self._silent_after_s]
            for node in gone:
                del self._last[node]
        return [self._last[node][0] for node in sorted(self._last)]


def states_of(nodes: list[NodeStatus]) -> dict[str, ModelStatus]:
    """What each model is doing, on the node where it is furthest. Items and memory are those of all nodes."""
    found: dict[str, ModelStatus] = {}
    for node in nodes:
        for name, status in node.models.items():
            known = found.get(name)
            found[name] = status if known is None else _joined(known, status)
    return found


def lacking_of(nodes: list[NodeStatus]) -> str:
    """What keeps a cluster from serving: no node that takes work and has loaded what is pinned. "" for nothing."""
    at_work = [node for node in nodes if not node.draining]
    if not at_work:
        return "no node has joined" if not nodes else "every node is shutting down"
    return "" if any(not node.lacking for node in at_work) else at_work[0].lacking


def _joined(one: ModelStatus, other: ModelStatus) -> ModelStatus:
    first, second = sorted((one, other), key=lambda status: _ORDER.index(status.state))
    return ModelStatus(
        state=first.state, pinned=first.pinned or second.pinned, runtime=first.runtime, device=first.device,
        dtype=first.dtype, tolerance=first.tolerance, loaded_at=first.loaded_at, failure=first.failure,
        memory_bytes=first.memory_bytes + second.memory_bytes,
        waiting_items=first.waiting_items + second.waiting_items,
        flying_items=first.flying_items + second.flying_items, pads=first.pads or second.pads,
        adapters=_furthest(first.adapters, second.adapters),
    )  # fmt: skip


def _furthest(one: dict[str, AdapterState], other: dict[str, AdapterState]) -> dict[str, AdapterState]:
    """What each adapter is doing, where it is furthest."""
    found = one | other
    for name in one.keys() & other.keys():
        found[name] = min(one[name], other[name], key=_ORDER.index)
    return found
