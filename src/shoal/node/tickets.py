"""A job in a node's hands: opened once into items, closed once into an answer. Knows tasks and dialects."""

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from shoal.catalog import Model
from shoal.dialects import Dialect, Timing, all_dialects
from shoal.protocol.envelope import Chunk, Envelope
from shoal.protocol.errors import PayloadTooLarge, ShoalError, over_limit
from shoal.protocol.items import Item, Output
from shoal.queue import Delivery
from shoal.tasks import Entry, Task, task_named


class Ticket:
    """One job: its items in order, which of them still have to be sent, and the outputs so far."""

    __slots__ = (
        "_to_do", "adapter", "arrived", "compute_s", "delivery", "dialect", "envelope", "items", "model",
        "outputs", "remaining", "request", "task", "tokenize_s", "unsent",
    )  # fmt: skip

    def __init__(
        self, delivery: Delivery, dialect: Dialect, task: Task, model: Model, request: Any, arrived: float
    ) -> None:
        self.delivery = delivery
        self.envelope: Envelope = delivery.job.envelope
        self.dialect, self.task, self.model, self.request = dialect, task, model, request
        self.arrived = arrived
        entries = task.split(request, model.facts)
        self.items = [entry if isinstance(entry, Item) else Item() for entry in entries]
        self.outputs: list[Output | None] = [_known(entry) for entry in entries]
        self.unsent = deque(index for index, output in enumerate(self.outputs) if output is None)
        self.remaining = self._to_do = len(self.unsent)
        self.tokenize_s = self.compute_s = 0.0
        self.adapter: Model | None = None

    @property
    def needs(self) -> str:
        """The digest of the LoRA adapter that it is computed with; "" for none."""
        return self.adapter.digest if self.adapter is not None else ""

    def use(self, adapter: Model) -> None:
        """Compute it with this adapter of its model. Only while nothing of it is begun."""
        self.adapter = adapter
        self.items = [msgspec.structs.replace(item, adapter=adapter.digest) for item in self.items]

    @property
    def id(self) -> str:
        return self.envelope.id

    def unsent_bytes(self) -> int:
        return sum(self.items[index].size_bytes for index in self.unsent)

    def give_away(self, indices: Sequence[int]) -> None:
        """Another node is asked for these."""
        gone = set(indices)
        self.unsent = deque(index for index in self.unsent if index not in gone)

    def take_back(self, indices: Sequence[int]) -> None:
        """Nobody else computed them."""
        self.unsent.extend(indices)

    def is_begun(self, recalled: int) -> bool:
        """Whether anything of it was computed, is being computed or given away, but for `recalled` items."""
        return recalled + len(self.unsent) < self._to_do

    def settle(self, index: int, output: Output) -> bool:
        """Keep one output; True when it was the last."""
        assert self.outputs[index] is None, "an item is answered once"
        self.outputs[index] = output
        self.remaining -= 1
        return self.remaining == 0

    def answer(self) -> Chunk:
        """The whole answer, from as many outputs as items."""
        outputs = [output for output in self.outputs if output is not None]
        assert len(outputs) == len(self.items)
        response = self.task.join(self.request, self.model.facts, outputs)
        received = self.envelope.received
        timing = Timing(
            total_ms=(time.time() - received) * 1e3,
            queue_ms=max(0.0, self.arrived - received) * 1e3,
            tokenize_ms=self.tokenize_s * 1e3,
            compute_ms=self.compute_s * 1e3,
        )
        reply = self.dialect.encode(self.envelope, self.request, response, self.model.facts, timing)
        return Chunk(self.id, reply.body, status=reply.status, headers=reply.headers)

    def refusal(self, error: ShoalError) -> Chunk:
        return refusal(self.dialect, self.envelope, error)


def _known(entry: Entry) -> Output | None:
    """The output of an entry that needs no computing."""
    match entry:
        case Item():
            return None
        case Output():
            return entry
        case _:
            return Output(fault=entry)


def refusal(dialect: Dialect, envelope: Envelope, error: ShoalError) -> Chunk:
    reply = dialect.refuse(error, accept=envelope.accept)
    return Chunk(envelope.id, reply.body, status=reply.status, headers=reply.headers)


def open_ticket(delivery: Delivery, model: Model, max_items: int) -> Ticket:
    """Decode and split a job. Raises a ShoalError that is the client's fault (or the model's nature)."""
    envelope = delivery.job.envelope
    dialect = all_dialects()[envelope.dialect]
    request = dialect.decode(envelope, delivery.job.body)
    ticket = Ticket(delivery, dialect, task_named(envelope.task), model, request, time.time())
    if len(ticket.items) > max_items:
        raise over_limit(
            PayloadTooLarge, "the request", seen=len(ticket.items), limit=max_items,
            setting="--max-items", unit="items",
        )  # fmt: skip
    return ticket
