"""What is pushed, proved on this node before anybody can ask for it. One push at a time, as the queue lends them:
if this node dies, another gets it. What is tried, and how, is `trial`'s.
"""

import asyncio
import contextlib
import logging
import time

from shoal.catalog import proof
from shoal.catalog.proof import LINE, Proved
from shoal.node.trial import NotHere, Trial
from shoal.observe import log as logs
from shoal.protocol.envelope import Chunk, can_read
from shoal.protocol.errors import InternalError, ResourceExhausted, ShoalError
from shoal.queue import Delivery, Queue

log = logging.getLogger("shoal.node")
PARKED_PULL_S = 30.0
MOST_BYTES = 32 * 1024 * 1024
EXTEND_EVERY_S = 1.0
PAUSE_S = 1.0
"""After something that another node may do better, or nobody for a moment."""
ELSEWHERE_S = 20.0
"""How long a push whose base, or room for it, is not here is left to nodes that may have it."""


class Prover:
    """`is_alone` says whether there is no other node."""

    def __init__(self, queue: Queue, trial: Trial, is_alone: bool) -> None:
        self._queue, self._trial, self._is_alone = queue, trial, is_alone
        self._job = ""
        self._task: asyncio.Task[Proved] | None = None
        queue.listen(self)

    async def run(self) -> None:
        """Until cancelled: what is in hand then goes back to the queue."""
        while True:
            try:
                for delivery in await self._queue.pull(
                    LINE, max_jobs=1, max_bytes=MOST_BYTES, wait_s=PARKED_PULL_S
                ):
                    await self._serve(delivery)
                await asyncio.sleep(0.01)  # a queue that is closing gives nothing, at once
            except Exception:
                log.exception("what is pushed cannot be proved here for a moment")
                await asyncio.sleep(PAUSE_S)

    # queue.Listener

    def work(self, line: str) -> None:
        """A pull is parked on the line of pushes all the time."""

    def cancelled(self, job_id: str) -> None:
        if job_id == self._job and self._task is not None:
            self._task.cancel()

    # One push.

    async def _serve(self, delivery: Delivery) -> None:
        """1. The node ends: back it goes. 2. Its base, or room for it, is not here: back, for others.
        3. Whoever pushed it has left. 4. An answer."""
        envelope = delivery.job.envelope
        self._job = envelope.id
        self._task = task = asyncio.create_task(self._prove(delivery))
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=EXTEND_EVERY_S)
                delivery.extend()
        except asyncio.CancelledError:  # 1
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
            delivery.give_back()
            raise
        finally:
            self._job, self._task = "", None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            log.info("a push was proved", extra=logs.fields(model=envelope.model))
            self._answer(delivery, task.result())
            return
        self._trial.let_go()
        is_for_others = isinstance(error, NotHere | ResourceExhausted) and not self._is_alone
        if is_for_others and time.time() - envelope.received < ELSEWHERE_S:
            delivery.give_back()  # 2
            await asyncio.sleep(PAUSE_S)
        elif isinstance(error, asyncio.CancelledError):  # 3
            log.info("whoever pushed it has left", extra=logs.fields(model=envelope.model))
            delivery.ack()
        else:
            self._answer(delivery, _told(error, envelope.model))  # 4

    async def _prove(self, delivery: Delivery) -> Proved:
        envelope = delivery.job.envelope
        if not can_read(envelope.version):
            raise InternalError(f"envelope version {envelope.version} is too far from ours")
        log.info("proving a push", extra=logs.fields(model=envelope.model, again=delivery.is_again))
        return await self._trial.prove(proof.read_question(delivery.job.body), envelope.deadline)

    def _answer(self, delivery: Delivery, outcome: Proved | ShoalError) -> None:
        status, data = proof.answer(outcome)
        delivery.reply(Chunk(delivery.job.envelope.id, data, status=status))
        delivery.ack()


def _told(error: BaseException, name: str) -> ShoalError:
    if not isinstance(error, ShoalError):
        log.error("a push could not be proved", exc_info=error, extra=logs.fields(model=name))
        return InternalError("the push could not be proved; the log of the node has the details")
    log.warning("a push was refused", extra=logs.fields(model=name, code=error.code, reason=error.message))
    return error
