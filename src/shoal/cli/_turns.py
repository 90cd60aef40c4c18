"""Turns at the processor for all nodes that `shoal up` begins on this machine, looked after by its own process."""

import asyncio

import psutil

from shoal.node import devices
from shoal.runtimes.turns import Turns

LOOK_EVERY_S = 0.5


class SharedTurns:
    """Without a spare one: the nodes fill each other's gaps. Nothing where a node is alone, which then looks after
    its own, or where the system has no turns.
    """

    def __init__(self, nodes: int) -> None:
        self._turns = Turns.make(devices.cores(), spare=False) if nodes > 1 else None
        if self._turns is None:
            return
        self._looking = asyncio.create_task(self._look(self._turns))

    @property
    def fds(self) -> tuple[int, ...]:
        return self._turns.fds if self._turns is not None else ()

    @property
    def environment(self) -> dict[str, str]:
        return self._turns.environment if self._turns is not None else {}

    async def _look(self, turns: Turns) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            turns.reclaim(_runs)

    def close(self) -> None:
        if self._turns is not None:
            self._looking.cancel()
            self._turns.close()


def _runs(pid: int) -> bool:
    """One that is stopped does not: the others go on without it, and it gives back what is no longer its own."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
