"""Work that a node gives itself: items computed by the ordinary scheduler, as if a request had brought them.

It knows the scheduler and tickets. Whatever it asks for comes back as outputs, or as the error that a client would
have been told.
"""

import asyncio
import secrets
import time
from collections.abc import Sequence

import msgspec

from shoal.catalog import Model
from shoal.dialects.part import encode_request, read_answer
from shoal.node.scheduler import Scheduler
from shoal.node.tickets import open_ticket
from shoal.protocol.envelope import Chunk, Envelope, Job
from shoal.protocol.errors import Cancelled, DeadlineExceeded, ShuttingDown
from shoal.protocol.items import Item, Output
from shoal.tasks.part import PartRequest

AGAIN_AFTER_S = 0.05


class OwnDelivery:
    """A `queue.Delivery` that came from no queue: what is replied is kept here."""

    is_again = False

    def __init__(self, job: Job) -> None:
        self.job = job
        self.answer: asyncio.Future[Chunk] = asyncio.get_running_loop().create_future()

    def reply(self, chunk: Chunk) -> None:
        if not self.answer.done():
            self.answer.set_result(chunk)

    def ack(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(Cancelled("nobody waits for it"))

    def extend(self) -> None:
        """Nobody else could have it."""

    def give_back(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(ShuttingDown("it was given back"))


async def compute(
    scheduler: Scheduler, model: Model, adapter: Model | None, items: Sequence[Item], deadline: float
) -> list[Output]:
    """As many outputs as items, in order; faults of single items stand in theirs. The line of `model` is there.

    Given back, which happens to what waits behind something slow, it is offered again. Raises the ShoalError that
    it was refused with, DeadlineExceeded after `deadline` (unix seconds).
    """
    while True:
        delivery = OwnDelivery(_job(model, adapter, items, deadline))
        ticket = open_ticket(delivery, model, len(items))
        ticket.adapter = adapter
        scheduler.private.offer(ticket, time.time())
        try:
            async with asyncio.timeout(deadline - time.time()):
                chunk = await delivery.answer
        except ShuttingDown:
            await asyncio.sleep(AGAIN_AFTER_S)
        except TimeoutError:
            raise DeadlineExceeded("it was not computed before the deadline") from None
        else:
            return read_answer(chunk.status, chunk.data).outputs
        finally:
            scheduler.cancelled(ticket.id, time.time())


def _job(model: Model, adapter: Model | None, items: Sequence[Item], deadline: float) -> Job:
    digest = adapter.digest if adapter is not None else ""
    body = encode_request(PartRequest([_with(item, digest) for item in items]))
    asked = adapter or model
    envelope = Envelope(
        id=f"own-{secrets.token_hex(8)}", task="part", model=asked.name, line=model.name, dialect="part",
        route="part", deadline=deadline, received=time.time(), size_bytes=len(body),
    )  # fmt: skip
    return Job(envelope, body)


def _with(item: Item, digest: str) -> Item:
    return msgspec.structs.replace(item, adapter=digest) if digest else item
