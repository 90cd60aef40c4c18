"""Jobs as they come from the queue, opened into tickets; what cannot be served is refused here and acknowledged.

No model is loaded for a job before it was opened.
"""

import asyncio
import logging
from collections.abc import Mapping

from shoal.dialects import all_dialects
from shoal.node.line import Line
from shoal.node.tickets import Ticket, open_ticket, refusal
from shoal.observe import log as logs
from shoal.observe import metrics
from shoal.protocol.envelope import can_read
from shoal.protocol.errors import InternalError, ModelNotFound, ShoalError
from shoal.queue import Delivery

log = logging.getLogger("shoal.node")
DECODE_ON_LOOP_BYTES = 64 * 1024
"""A larger body is decoded on a thread, so that it does not hold up everyone else's."""


async def opened(delivery: Delivery, lines: Mapping[str, Line], max_items: int) -> Ticket | None:
    """The job as a ticket; or None, when it was refused here."""
    envelope = delivery.job.envelope
    try:
        if not can_read(envelope.version):
            raise InternalError(f"envelope version {envelope.version} is too far from ours")
        if envelope.line not in lines:
            raise ModelNotFound(f"{envelope.line} was removed")
        model = lines[envelope.line].model
        if len(delivery.job.body) > DECODE_ON_LOOP_BYTES:
            return await asyncio.to_thread(open_ticket, delivery, model, max_items)
        return open_ticket(delivery, model, max_items)
    except ShoalError as error:
        refused = error
    except Exception:
        log.exception("a job could not be opened", extra=logs.fields(request=envelope.id))
        refused = InternalError("the request could not be read; the log has the details")
    metrics.refused(refused.code)
    delivery.reply(refusal(all_dialects()[envelope.dialect], envelope, refused))
    delivery.ack()
    return None
