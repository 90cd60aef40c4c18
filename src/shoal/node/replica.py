"""One model on one machine, as the scheduler sees it: its process if any, what waits, what is in flight.

State only, with the few sums that belong to it. The scheduler alone changes it.
"""

from collections import deque
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from shoal.catalog import Model
from shoal.node import batching
from shoal.node.cost import Cost, Learner
from shoal.node.tickets import Ticket
from shoal.node.waiting import Waiting
from shoal.protocol.errors import ShoalError
from shoal.protocol.facts import Profile
from shoal.protocol.items import Item
from shoal.protocol.status import ModelStatus

Status = Literal["absent", "loading", "ready", "yielding", "stopping"]


class Known(msgspec.Struct, kw_only=True):
    """What earlier runs measured of a model on this machine. Bounds keep a damaged file from being believed."""

    footprint_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 44)] = 0
    load_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 1.0
    tokens_per_byte: Annotated[float, msgspec.Meta(ge=0.001, le=4)] = 0.25
    cost: Cost = Cost()


class Flight(msgspec.Struct, frozen=True):
    """One item at a runtime. `suspected`: another runtime died with it, so nothing else is sent beside it.

    `strikes` counts the deaths at which it was the only item there.
    """

    ticket: Ticket
    index: int
    suspected: bool = False
    strikes: int = 0


class Replica:
    """One model here: its process if any, the tickets that wait for it, the items in flight."""

    def __init__(self, model: Model, profile: Profile, known: Known, pinned: bool) -> None:
        self.model, self.profile, self.known, self.pinned = model, profile, known, pinned
        self.asked = profile  # `profile` is what its process made of it, once there is one
        self.learner = Learner(known.cost)
        self.status: Status = "absent"
        self.worker = 0
        self.waiting = Waiting()
        self.suspects: deque[Flight] = deque()
        self.flying: dict[int, Flight] = {}
        self.backlog = 0.0  # micro-batches' worth at the runtime, as last heard and as sent since
        self.windows = 0
        self.sent_after: deque[tuple[int, float]] = deque()  # (window, micro-batches' worth) not yet seen there
        self.linger_until = self.sent_at = 0.0
        self.pulling = False
        self.successor: tuple[Model, Profile, Known] | None = None
        self.launched_at = self.loaded_at = self.last_used = self.last_heard = 0.0
        self.load_attempts = 0
        self.failure: ShoalError | None = None
        self.failed_until = 0.0

    def become(self, model: Model, profile: Profile, known: Known) -> None:
        """Take up the model's new files or settings. Only while no process has the old ones; what waits stays."""
        assert self.status == "absent", "a process still has the old ones"
        self.model, self.profile, self.known = model, profile, known
        self.asked = profile
        self.learner = Learner(known.cost)
        self.successor, self.failure = None, None

    @property
    def busy(self) -> bool:
        return self.status == "loading" or bool(self.flying or self.waiting or self.suspects)

    @property
    def size_bytes(self) -> int:
        """The footprint measured, or before any load a guess from the size of the files."""
        return self.known.footprint_bytes or 150_000_000 + 2 * self.model.size_bytes

    def describe(self, now: float) -> ModelStatus:
        failed = self.failure is not None and now < self.failed_until
        state = "ready" if self.status == "yielding" else self.status
        return ModelStatus(
            state="failed" if failed and self.status == "absent" else state,
            pinned=self.pinned,
            memory_bytes=self.known.footprint_bytes if self.status != "absent" else 0,
            runtime=self.profile.runtime,
            device=self.profile.device,
            dtype="" if self.status == "absent" and self.model.facts.files == "onnx" else self.profile.dtype,
            tolerance=self.profile.tolerance,
            waiting_items=self.waiting.items,
            flying_items=len(self.flying),
            loaded_at=self.loaded_at if self.status != "absent" else 0.0,
            failure=self.failure.message if failed and self.failure else "",
        )

    def batches_in(self, items: Iterable[Item]) -> float:
        """About how many micro-batches these make, before they are tokenised."""
        sizes = [item.size_bytes for item in items]
        return self.profile.batches(len(sizes), sum(sizes) * self.known.tokens_per_byte + 2 * len(sizes))

    def load(self) -> batching.Load:
        profile = self.profile
        return batching.Load(
            streams=profile.streams,
            batch_items=profile.batch_items,
            batch_tokens=profile.batch_tokens,
            backlog=self.backlog if self.flying else 0.0,
            waiting_jobs=len(self.waiting.tickets),
            waiting_items=self.waiting.items,
            waiting_bytes=self.waiting.size_bytes,
            waiting_tokens=self.waiting.size_bytes * self.known.tokens_per_byte + 2 * self.waiting.items,
            linger_until=self.linger_until,
            sent_at=self.sent_at,
        )
