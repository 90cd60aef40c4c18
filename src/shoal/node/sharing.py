"""Parts of large requests given to other nodes: published as jobs of the same line, their answers brought back.

It knows the queue and the dialect of parts. Which parts, and what becomes of a lost one, is decided elsewhere.
"""

import asyncio
import itertools
import logging
import secrets
from typing import Protocol

import msgspec

from shoal.dialects.part import encode_request, read_answer
from shoal.node.tickets import Ticket
from shoal.observe import log as logs
from shoal.protocol.envelope import Envelope, Job
from shoal.protocol.errors import InternalError, ShoalError
from shoal.protocol.items import Output
from shoal.queue import Queue
from shoal.tasks.part import PartRequest

log = logging.getLogger("shoal.node")


class Owner(Protocol):
    """Who gave the part away hears once what became of it, unless the ticket was forgotten meanwhile."""

    def part_answered(self, ticket: Ticket, indices: list[int], outputs: list[Output]) -> None: ...
    def part_lost(self, ticket: Ticket, indices: list[int]) -> None: ...


class Sharing:
    def __init__(self, queue: Queue, owner: Owner) -> None:
        self._queue, self._owner = queue, owner
        self._numbers = itertools.count(1)
        self._name = secrets.token_hex(6)  # the request may be taken apart by two nodes: their parts differ
        self._tasks: dict[str, set[asyncio.Task[None]]] = {}

    def share(self, ticket: Ticket, indices: list[int]) -> None:
        """Never raises: a part that nobody answers comes back as lost."""
        task = asyncio.get_running_loop().create_task(self._share(ticket, indices))
        tasks = self._tasks.setdefault(ticket.id, set())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def forget(self, ticket: Ticket) -> None:
        """Nobody waits for its parts any more: those that are out are cancelled."""
        for task in self._tasks.pop(ticket.id, ()):
            task.cancel()

    async def close(self) -> None:
        tasks = [task for tasks in self._tasks.values() for task in tasks]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _share(self, ticket: Ticket, indices: list[int]) -> None:
        try:
            outputs = await self._ask(ticket, indices)
        except ShoalError as error:
            log.info("a part comes back", extra=logs.fields(request=ticket.id, reason=error.message))
        except Exception:
            log.exception("a part comes back", extra=logs.fields(request=ticket.id))
        else:
            self._owner.part_answered(ticket, indices, outputs)
            return
        self._owner.part_lost(ticket, indices)

    async def _ask(self, ticket: Ticket, indices: list[int]) -> list[Output]:
        """Raises a ShoalError where the part is refused, lost, or answered with nonsense."""
        request = PartRequest([ticket.items[index] for index in indices])
        body = encode_request(request)
        inbox = await self._queue.publish(Job(self._envelope(ticket, len(body)), body))
        try:
            chunk = await inbox.next()
            status, data, last = chunk.status, [chunk.data], chunk.last
            while not last:
                chunk = await inbox.next()
                data.append(chunk.data)
                last = chunk.last
        finally:
            inbox.close()
        outputs = read_answer(status, b"".join(data)).outputs
        if len(outputs) != len(indices):
            raise InternalError(f"a part of {len(indices)} items was answered with {len(outputs)}")
        return outputs

    def _envelope(self, ticket: Ticket, size_bytes: int) -> Envelope:
        number = next(self._numbers)
        model = ticket.adapter.name if ticket.adapter is not None else ticket.envelope.model
        return msgspec.structs.replace(
            ticket.envelope, id=f"{ticket.id}.{self._name}.{number}", task="part", dialect="part", route="part",
            content_type="", accept="", size_bytes=size_bytes, model=model,
        )  # fmt: skip
