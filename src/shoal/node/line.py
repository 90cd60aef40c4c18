"""One model on one machine, as the scheduler sees it: what waits for it, what is known of it, its replicas.

State only, with the few sums that belong to it. The scheduler alone changes it.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import msgspec

from shoal.catalog import Model, proof
from shoal.node import batching, pulling
from shoal.node.adapters import Failure, states_of
from shoal.node.cost import Cost, Learner
from shoal.node.replica import Flight, Replica
from shoal.node.tickets import Ticket
from shoal.node.waiting import Count, Waiting
from shoal.protocol.errors import ShoalError
from shoal.protocol.facts import Profile
from shoal.protocol.items import Item
from shoal.protocol.status import ModelStatus
from shoal.runtimes import padded

Status = Literal["absent", "loading", "ready", "yielding", "stopping"]
_BEST_FIRST: tuple[Status, ...] = ("ready", "yielding", "loading", "stopping")


MARKERS = 2
"""Tokens that most texts have besides those of their words."""


class Known(msgspec.Struct, kw_only=True):
    """What earlier runs measured of a model on this machine. Bounds keep a damaged file from being believed."""

    footprint_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 44)] = 0
    load_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 1.0
    tokens_per_byte: Annotated[float, msgspec.Meta(ge=0.001, le=4)] = 0.25
    cost: Cost = Cost()


class Line:
    """The jobs of one model in this node's hands, and the processes that hold the model: one a device at most.

    All its replicas run on devices of one kind, so that one cost and one profile hold for them.
    """

    def __init__(self, model: Model, profile: Profile, known: Known, pinned: bool) -> None:
        self.model, self.known, self.pinned = model, known, pinned
        self.asked = profile  # `profile` is what a process made of it, once there is one
        self.profile = profile
        self.learner = Learner(known.cost)
        self.waiting = Waiting()
        self.suspects: deque[Flight] = deque()
        self.replicas: list[Replica] = []
        self.successor: tuple[Model, Profile, Known] | None = None
        self.pulling = False
        self.linger_until = 0.0
        self.padding = 1.0  # tokens computed for one that is useful
        self.job_tokens, self.job_bytes = 30.0, 200.0  # of one job and its body
        self.item_bytes = 120.0  # of one text
        self.open_s = self.tokenize_s = 0.0  # what a pull's jobs take before they can be computed
        self.claim_until = 0.0  # we told the others that we load it
        self.take_at = 0.0  # when we shall, if none of them does
        self.asked_at = 0.0  # when we last asked how many others wait for it
        self.last_used = 0.0
        self.removed_at = 0.0  # since when its model is not here any more
        self.load_attempts = 0
        self.failure: ShoalError | None = None
        self.failed_until = 0.0
        self.is_proved = False
        self.adapters_wanted: dict[str, float] = {}  # by digest, since when some wait for it and no replica has it
        self.adapters_failed: dict[str, Failure] = {}  # by digest, until they may be tried again

    def become(self, model: Model, profile: Profile, known: Known) -> None:
        """Take up the model's new files or settings. Only while no process has the old ones; what waits stays."""
        assert not self.replicas, "a process still has the old ones"
        self.model, self.profile, self.known = model, profile, known
        self.asked = profile
        self.learner = Learner(known.cost)
        self.successor, self.failure = None, None
        self.adapters_failed.clear()

    @property
    def is_private(self) -> bool:
        """Of a model that is being proved: nobody can ask for it yet."""
        return self.model.card.name == proof.LINE

    @property
    def status(self) -> Status:
        """That of its best replica."""
        states = {replica.status for replica in self.replicas}
        return next((status for status in _BEST_FIRST if status in states), "absent")

    @property
    def ready(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.status == "ready"]

    @property
    def flying(self) -> int:
        """Items at its runtimes."""
        return sum(len(replica.flying) for replica in self.replicas)

    @property
    def wants_process(self) -> bool:
        return bool(self.waiting or self.suspects or self.pinned) and not self.removed_at

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.suspects or any(replica.busy for replica in self.replicas))

    @property
    def size_bytes(self) -> int:
        """Of one replica: the footprint measured, or before any load a guess from the size of the files."""
        return self.known.footprint_bytes or 150_000_000 + 2 * self.model.size_bytes

    def learn_job(self, tokens: int, size_bytes: int) -> None:
        """A job was answered: what its body's size says of the next one's cost."""
        self.job_tokens += 0.02 * (tokens - self.job_tokens)
        self.job_bytes += 0.02 * (size_bytes - self.job_bytes)

    @property
    def tokens_per_body_byte(self) -> float:
        return min(max(self.job_tokens / max(1.0, self.job_bytes), 0.001), 4.0)

    def has_failed(self, now: float) -> bool:
        return self.failure is not None and now < self.failed_until

    def batches_in(self, items: Iterable[Item]) -> float:
        """About how many micro-batches these make, before they are tokenised."""
        sizes = [item.size_bytes for item in items]
        return self.profile.batches(len(sizes), self.tokens_in(len(sizes), sum(sizes)))

    def learn_item(self, tokens: int, size_bytes: int) -> None:
        """A text of so many bytes had so many tokens. What counts is how many there are in many bytes."""
        self.item_bytes += 0.02 * (size_bytes - self.item_bytes)
        share = min(0.2, 0.02 * size_bytes / max(1.0, self.item_bytes))
        ratio = min(max(tokens - MARKERS, 0) / max(1, size_bytes), 1.0)
        self.known.tokens_per_byte += share * (ratio - self.known.tokens_per_byte)

    def tokens_in(self, items: int, size_bytes: int) -> float:
        """About how many tokens that much text makes."""
        return size_bytes * self.known.tokens_per_byte + MARKERS * items

    @property
    def tokens_waiting(self) -> float:
        """Of what can be computed now; what waits for an adapter does so aside."""
        return self.tokens_of(self.waiting.count(self.can_compute))

    def tokens_of(self, count: Count) -> float:
        return self.tokens_in(count.items, count.size_bytes)

    def can_compute(self, digest: str) -> bool:
        """Whether some replica has that adapter; while there is none, every ticket waits alike."""
        return not digest or not self.ready or any(replica.shelf.can(digest) for replica in self.ready)

    @property
    def streams(self) -> int:
        """Of all its replicas, those on their way included; one replica's where there is none."""
        return sum(replica.profile.streams for replica in self.replicas) or self.profile.streams

    def seconds(self, profile: Profile, lengths: Sequence[float]) -> float:
        """How long a replica is predicted to take for a window of texts of these lengths, in tokens."""
        cost = self.learner.cost
        if profile.pads:
            batches, computed = padded.about(lengths, profile)
            return (batches * cost.a + cost.b * computed) / profile.streams
        computed = sum(lengths) * self.padding
        batches = math.ceil(max(1.0, len(lengths) / profile.batch_items, computed / profile.batch_tokens))
        return (batches * cost.a + cost.b * computed) / profile.streams

    def hand(self, now: float, on: Replica | None = None) -> pulling.Hand:
        """What waits here, and who computes it: all replicas, or one."""
        replicas = self.replicas if on is None else [on]
        devices = tuple(pulling.Device(replica.profile.streams, replica.free_at(now)) for replica in replicas)
        able = self.waiting.count(self.can_compute)
        return pulling.Hand(
            devices=devices or (pulling.Device(self.profile.streams),),
            batch_items=self.profile.batch_items,
            batch_tokens=self.profile.batch_tokens,
            held_jobs=able.jobs,
            held_bytes=self.waiting.count().size_bytes,
            held_tokens=self.tokens_of(able),
        )

    def load(self, replica: Replica) -> batching.Load:
        """What waits here that this replica can compute, and how much it has."""
        able = self.waiting.count(replica.shelf.can)
        return batching.Load(
            streams=replica.profile.streams,
            batch_items=replica.profile.batch_items,
            batch_tokens=replica.profile.batch_tokens,
            backlog=replica.at_work,
            waiting_items=able.items,
            waiting_tokens=self.tokens_of(able),
            linger_until=self.linger_until,
            sent_at=replica.sent_at,
            due_at=replica.busy_with.due_at,
        )

    def forget(self, ticket: Ticket, now: float) -> list[tuple[Replica, list[int]]]:
        """Take a ticket out of everything; which replicas have items of it, under which keys."""
        self.waiting.remove(ticket)
        return [(replica, keys) for replica in self.replicas if (keys := replica.forget(ticket, now))]

    def describe(self, now: float) -> ModelStatus:
        status, failed = self.status, self.has_failed(now)
        state: Literal["absent", "loading", "ready", "stopping"] = "ready" if status == "yielding" else status
        untold = status == "absent" and self.model.facts.files == "onnx"
        return ModelStatus(
            state="failed" if failed and status == "absent" else state,
            pinned=self.pinned,
            memory_bytes=self.known.footprint_bytes * len(self.replicas),
            runtime=self.profile.runtime,
            device=",".join(replica.device for replica in self.replicas) or self.profile.device,
            dtype="" if untold else self.profile.dtype,
            tolerance=self.profile.tolerance,
            waiting_items=self.waiting.items,
            flying_items=self.flying,
            loaded_at=min((replica.loaded_at for replica in self.replicas), default=0.0),
            failure=self.failure.message if failed and self.failure else "",
            pads=self.profile.pads,
            adapters=states_of([replica.shelf for replica in self.replicas], self.adapters_failed.values(), now),
        )
