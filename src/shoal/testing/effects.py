"""A scheduler's world for tests: what it asked to be done, recorded, and jobs for it to decide about.

Named as the fake it is: no process is started and nothing is sent.
"""

import itertools
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from shoal.catalog import Card, Model, Virtual
from shoal.dialects import all_dialects
from shoal.node.tickets import Ticket
from shoal.protocol.envelope import Chunk, Envelope, Job, Priority
from shoal.protocol.errors import ShoalError
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.frames import Answer, Measured
from shoal.protocol.items import Item, Output
from shoal.protocol.tensors import Tensor
from shoal.queue import Bounds
from shoal.tasks import task_named
from shoal.tasks.encode import EncodeRequest, Text

FACTS = Facts(tasks=("encode",), family="virtual", files="none", max_tokens=512, dims=4)


def model(name: str, size_bytes: int = 1000, *, base: str = "") -> Model:
    """A model, or a LoRA adapter of the model that is called `base`."""
    card = Card(name=name, source=Virtual(), base=base)
    return Model(card=card, facts=FACTS, folder=Path("nowhere"), digest=f"of {name}", size_bytes=size_bytes)


class Delivery:
    """A lent job that remembers what was done with it."""

    is_again = False

    def __init__(self, job: Job) -> None:
        self.job = job
        self.done: list[str] = []

    def reply(self, chunk: Chunk) -> None:
        self.done.append("reply")

    def ack(self) -> None:
        self.done.append("ack")

    def extend(self) -> None:
        self.done.append("extend")

    def give_back(self) -> None:
        self.done.append("give back")


def ticket(
    name: str,
    of: Model,
    texts: int = 1,
    *,
    deadline: float | None = None,
    priority: Priority = "interactive",
    adapter: Model | None = None,
) -> Ticket:
    """An encode job of that many short texts for a model, with one of its adapters or none."""
    now = time.time()
    envelope = Envelope(
        id=name, task="encode", model=of.name, line=of.name, dialect="native", route="encode",
        deadline=now + 60 if deadline is None else deadline, received=now, priority=priority,
    )  # fmt: skip
    request = EncodeRequest(inputs=[Text(f"text {index} of {name}") for index in range(texts)])
    delivery = Delivery(Job(envelope, b""))
    made = Ticket(delivery, all_dialects()["native"], task_named("encode"), of, request, now)
    if adapter is not None:
        made.use(adapter)
    return made


class Recorded:
    """Effects, recorded. `sent[worker]` holds the windows that a worker got, as (keys, items)."""

    def __init__(self) -> None:
        self._workers = itertools.count(1)
        self.pulls: list[tuple[str, int]] = []
        self.pulls_any: list[tuple[str, dict[str, Bounds]]] = []
        self.pulled_anew: list[str] = []
        self.launched: list[str] = []
        self.retired: list[int] = []
        self.killed: list[int] = []
        self.sent: dict[int, list[tuple[list[int], list[Item]]]] = {}
        self.taken: list[tuple[int, str]] = []
        self.let_go: list[tuple[int, str]] = []
        self.cancelled: list[int] = []
        self.finished: list[Ticket] = []
        self.refused: list[tuple[str, ShoalError]] = []
        self.dropped: list[str] = []
        self.given_back: list[str] = []
        self.shared: list[tuple[Ticket, list[int]]] = []
        self.asked_waiting: list[str] = []
        self.claims: list[str] = []
        self.released: list[str] = []
        self.wakes: list[float] = []

    def pull(self, line: str, max_jobs: int, max_bytes: int) -> None:
        self.pulls.append((line, max_jobs))

    def pull_any(self, device: str, wanted: Mapping[str, Bounds]) -> None:
        self.pulls_any.append((device, dict(wanted)))

    def pull_anew(self, device: str) -> None:
        self.pulled_anew.append(device)

    def launch(self, model: str, profile: Profile) -> int:
        self.launched.append(model)
        return next(self._workers)

    def retire(self, worker: int) -> None:
        self.retired.append(worker)

    def kill(self, worker: int) -> None:
        self.killed.append(worker)

    def send(self, worker: int, keys: list[int], items: list[Item]) -> None:
        self.sent.setdefault(worker, []).append((keys, items))

    def take_adapter(self, worker: int, adapter: Model) -> None:
        self.taken.append((worker, adapter.digest))

    def drop_adapter(self, worker: int, digest: str) -> None:
        self.let_go.append((worker, digest))

    def cancel(self, worker: int, keys: list[int]) -> None:
        self.cancelled += keys

    def finish(self, ticket: Ticket) -> None:
        self.finished.append(ticket)

    def refuse(self, ticket: Ticket, error: ShoalError) -> None:
        self.refused.append((ticket.id, error))

    def drop(self, ticket: Ticket) -> None:
        self.dropped.append(ticket.id)

    def give_back(self, ticket: Ticket) -> None:
        self.given_back.append(ticket.id)

    def share(self, ticket: Ticket, indices: list[int]) -> None:
        self.shared.append((ticket, indices))

    def ask_waiting(self, line: str, within_s: float) -> None:
        self.asked_waiting.append(line)

    def claim(self, line: str, until: float) -> None:
        self.claims.append(line)

    def release(self, line: str) -> None:
        self.released.append(line)

    def wake_at(self, when: float) -> None:
        self.wakes.append(when)


def answer(keys: list[int], seen: int, backlog: int = 0) -> Answer:
    """Every key answered with a vector, as window `seen`."""
    outputs = [Output({"dense": Tensor.of(np.ones(4, "f4"))}, tokens=5) for _ in keys]
    return Answer(keys, outputs, backlog, seen, Measured(len(keys), 5 * len(keys), 25 * len(keys), 0.005))
