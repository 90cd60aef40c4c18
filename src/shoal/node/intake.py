"""Jobs as they come from the queue, opened into tickets; what cannot be served is refused here and acknowledged.

No model is loaded for a job before it was opened.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from shoal.catalog import Model
from shoal.dialects import all_dialects
from shoal.node.line import Line
from shoal.node.tickets import Ticket, open_ticket, refusal
from shoal.observe import log as logs
from shoal.observe import metrics
from shoal.protocol.envelope import can_read
from shoal.protocol.errors import InternalError, InvalidInput, ModelNotFound, ShoalError
from shoal.queue import Delivery
from shoal.tasks.part import PartRequest
from shoal.tasks.tokenize import TokenizeRequest

log = logging.getLogger("shoal.node")
DECODE_ON_LOOP_BYTES = 64 * 1024
"""A larger body is decoded on a thread, so that it does not hold up everyone else's."""


Find = Callable[[str, Model], Model]
"""The adapter of that name of a model. Raises ModelNotFound, or InvalidInput for one of another model."""


async def opened(delivery: Delivery, lines: Mapping[str, Line], find: Find, max_items: int) -> Ticket | None:
    """The job as a ticket; or None, when it was refused here."""
    envelope = delivery.job.envelope
    try:
        if not can_read(envelope.version):
            raise InternalError(f"envelope version {envelope.version} is too far from ours")
        if envelope.line not in lines:
            raise ModelNotFound(f"{envelope.line} was removed")
        model = lines[envelope.line].model
        if len(delivery.job.body) > DECODE_ON_LOOP_BYTES:
            ticket = await asyncio.to_thread(open_ticket, delivery, model, max_items)
        else:
            ticket = open_ticket(delivery, model, max_items)
        if name := adapter_asked(ticket):
            use(ticket, find(name, model))
        return ticket
    except ShoalError as error:
        refused = error
    except Exception:
        log.exception("a job could not be opened", extra=logs.fields(request=envelope.id))
        refused = InternalError("the request could not be read; the log has the details")
    metrics.refused(refused.code)
    delivery.reply(refusal(all_dialects()[envelope.dialect], envelope, refused))
    delivery.ack()
    return None


def adapter_asked(ticket: Ticket) -> str:
    """The name of the LoRA adapter that it is to be computed with; "" for none. A request names one as its model,
    or beside its model. Raises InvalidInput for two.
    """
    envelope, beside = ticket.envelope, getattr(ticket.request, "adapter", "")
    named = envelope.model if envelope.model != envelope.line else ""
    if named and beside not in ("", named):
        raise InvalidInput(f"{named} is an adapter itself, so that {beside[:200]!r} cannot be put on top of it")
    return named or beside


def use(ticket: Ticket, adapter: Model) -> None:
    """Have it computed with this adapter. Raises ModelNotFound where it is a part of another node's request, and
    that has other files of this name."""
    if isinstance(ticket.request, PartRequest):
        if any(item.adapter != adapter.digest for item in ticket.items):
            raise ModelNotFound(f"{adapter.name} is here with other files")
        ticket.adapter = adapter
    elif not isinstance(ticket.request, TokenizeRequest):  # which computes nothing
        ticket.use(adapter)
