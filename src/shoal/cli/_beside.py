"""A node that takes its usual share of a machine's memory, and hears that others of the machine have theirs
already: it says so, once."""

import logging
import socket
import time

from shoal.observe import log as logs
from shoal.protocol import sizes
from shoal.protocol.status import NodeStatus
from shoal.queue.fleet import Fleet

log = logging.getLogger("shoal")


class Beside:
    """A reader of the board (queue.board.Reader). Who began first keeps quiet."""

    def __init__(self, node: str, budget_bytes: int, machine_bytes: int) -> None:
        self._node, self._budget, self._machine = node, budget_bytes, machine_bytes
        self._host, self._began = socket.gethostname(), time.time()
        self._fleet = Fleet()
        self._has_said = False

    def noted(self, key: str, note: bytes | None) -> None: ...

    def told(self, status: NodeStatus) -> None:
        is_before = status.host == self._host and status.node != self._node and status.began < self._began
        if self._has_said or not is_before:
            return
        now = time.monotonic()
        self._fleet.told(status, now)
        others = self._fleet.nodes(now)
        taken = sum(other.memory_budget_bytes for other in others)
        if self._budget + taken <= self._machine:
            return
        self._has_said = True
        log.warning(
            "nodes of this machine may together take more memory than it has; --memory says how much this one may",
            extra=logs.fields(
                this=sizes.in_words(self._budget), others=sizes.in_words(taken),
                machine=sizes.in_words(self._machine), nodes=",".join(other.node for other in others),
            ),
        )  # fmt: skip
