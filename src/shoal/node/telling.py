"""What this node tells the cluster: its status, and which models its store holds. Also what `/status` shows of it.

It reads the agent and changes nothing. A board carries what it says; alone on a machine there is none.
"""

import asyncio
import logging
import secrets
import socket
import time
from collections import Counter

from shoal.catalog import Model
from shoal.catalog.shared import key_of, note_of
from shoal.node import devices
from shoal.node.agent import Agent
from shoal.observe import log as logs
from shoal.protocol.status import DeviceStatus, NodeStatus
from shoal.queue.board import Board
from shoal.version import __version__

log = logging.getLogger("shoal.node")
TELL_EVERY_S = 1.0


class Telling:
    def __init__(self, agent: Agent, node: str, pool: str = "default", objects: str = "") -> None:
        """`objects` is the id of the object store that pushed models come from."""
        self._objects = objects
        self._agent, self._node, self._pool = agent, node, pool
        self._began = time.time()
        self._put_up: dict[str, Model] = {}
        self._devices = _devices()

    def status(self) -> NodeStatus:
        agent, now = self._agent, time.time()
        models = agent.states_to_tell()
        in_hand = Counter(ticket.model.name for ticket in agent.scheduler.tickets.values())
        return NodeStatus(
            node=self._node, pool=self._pool, host=socket.gethostname(), version=__version__, began=self._began,
            told=now, devices=self._devices, memory_budget_bytes=agent.memory_budget_bytes,
            memory_used_bytes=sum(status.memory_bytes for status in models.values()), models=models,
            lines=agent.records.tally.lines(in_hand, agent.adapters_held(), now),
            known_models=len(agent.scheduler.lines), lacking=agent.lacking(), draining=agent.draining,
            objects=self._objects, places=agent.places,
        )  # fmt: skip

    async def run(self, board: Board) -> None:
        """Until cancelled: put up notes as models come and go, and tell a status a second."""
        while True:
            try:
                self._put_notes(board)
                board.tell(self.status())
            except Exception:
                log.exception("this node's status could not be told")
            await asyncio.sleep(TELL_EVERY_S)

    def farewell(self, board: Board) -> None:
        """The last status, which says that no more work is taken. The notes stay: others may hold the models."""
        board.tell(self.status())

    def _put_notes(self, board: Board) -> None:
        models = self._agent.models_here()
        for name, model in models.items():
            if self._put_up.get(name) is not model:
                key, note = note_of(model)
                board.put(key, note)
        for name in self._put_up.keys() - models.keys():
            board.take_down(key_of(name))
        if models.keys() != self._put_up.keys():
            log.info("offering models", extra=logs.fields(models=len(models)))
        self._put_up = models


def _devices() -> tuple[DeviceStatus, ...]:
    kind = devices.accelerator()
    cpu = DeviceStatus(kind="cpu", name=f"{devices.cores()} cores", memory_bytes=devices.memory_bytes())
    return (cpu, DeviceStatus(kind=kind)) if kind else (cpu,)


def node_name() -> str:
    """A name that no other node has, of this machine or another."""
    return f"{socket.gethostname()}-{secrets.token_hex(3)}"
