"""What a node tells of itself and its models: for listings, readiness, metrics, the page, and other nodes.

Every node tells a `NodeStatus` once a second; who listens keeps the last of each (queue/fleet.py).
"""

from typing import Literal

import msgspec

AdapterState = Literal["ready", "loading", "failed"]
MOST_ADAPTERS_TOLD = 256
"""Of one model; those used last."""


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`state` "absent" means: known, files here, loaded at the next request. Memory is measured, in bytes."""

    state: Literal["absent", "loading", "ready", "stopping", "failed"]
    pinned: bool = False
    memory_bytes: int = 0
    runtime: str = ""
    device: str = ""
    dtype: str = ""
    tolerance: float = 0.0
    waiting_items: int = 0
    flying_items: int = 0
    loaded_at: float = 0.0
    failure: str = ""
    pads: bool = False
    """Its engine pads texts to each other, so that its line is kept apart by size."""
    adapters: dict[str, AdapterState] = {}
    """Of its LoRA adapters, by name, those that are in memory, on their way there, or failed a moment ago."""


class LineStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one node did for one line. Rates and shares are over the last seconds, counts since the node began.

    `useful_tokens` exclude padding. `busy_share` is time in forward passes over time, summed over streams and
    divided by them. `fill` is items or tokens in a micro-batch over what it may hold, whichever is fuller.
    `padding` is the share of computed tokens that were padding. Shares are from 0 to 1.
    """

    jobs_in_hand: int = 0
    useful_tokens_per_s: float = 0.0
    items_per_s: float = 0.0
    busy_share: float = 0.0
    fill: float = 0.0
    padding: float = 0.0
    wait_s: float = 0.0
    """How long the jobs taken over the last seconds had waited in the queue, their mean."""
    given_back: int = 0
    """Jobs that the node returned to the queue unstarted."""
    redelivered: int = 0
    """Jobs that came to this node not for the first time: somebody gave them back, or their lease ran out."""
    claimed_loads: int = 0
    """Loads that this node claimed, so that others leave the line to it."""
    adapters: int = 0
    """LoRA adapters that its replicas hold in memory, summed over them."""


class DeviceStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`kind` is "cpu", "cuda" or "virtual"; `name` the maker's, or the number of cores. Memory in bytes."""

    kind: str
    name: str = ""
    memory_bytes: int = 0


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node, as of `told` (unix seconds, its own clock). `models` are those that it holds in memory, loads,
    fails to load, pins or was asked for; how many its disk holds in all is `known_models`.

    `lacking` says what keeps it from being ready, "" for nothing. `draining`: it takes no more work. `objects`
    is the id of the object store from which it serves what is pushed, "" for none.
    """

    node: str
    pool: str = "default"
    host: str = ""
    version: str = ""
    began: float = 0.0
    told: float = 0.0
    devices: tuple[DeviceStatus, ...] = ()
    memory_budget_bytes: int = 0
    memory_used_bytes: int = 0
    models: dict[str, ModelStatus] = {}
    lines: dict[str, LineStatus] = {}
    known_models: int = 0
    lacking: str = ""
    draining: bool = False
    places: int = 1
    """Its devices, each of which may hold one replica of a model."""
    objects: str = ""


class LineOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A line with jobs in the queue or at a node, over all nodes: sums, and means by what each node computed.

    `nodes` are those at work for it; `busy_share` is their mean. The words are those of `LineStatus`.
    """

    model: str
    queued_jobs: int = 0
    queued_bytes: int = 0
    oldest_s: float = 0.0
    nodes: int = 0
    jobs_in_hand: int = 0
    useful_tokens_per_s: float = 0.0
    items_per_s: float = 0.0
    wait_s: float = 0.0
    busy_share: float = 0.0
    fill: float = 0.0
    padding: float = 0.0
    given_back: int = 0
    redelivered: int = 0
    claimed_loads: int = 0
    adapters: int = 0


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Requests to compute that one gateway answered and refused, lately and in all; `refusals` by error code."""

    answered_per_s: float = 0.0
    refused_per_s: float = 0.0
    answered: int = 0
    refused: int = 0
    refusals: dict[str, int] = {}


class ModelOverview(msgspec.Struct, frozen=True, kw_only=True):
    """As much of a model's entry as an overview needs."""

    name: str
    status: ModelStatus
    base: str | None = None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway's `/status` says, for those who read it as this version does."""

    version: str
    uptime_s: float
    ready: bool
    lacking: str
    traffic: Traffic
    models: list[ModelOverview]
    unlisted: int = 0
    """Models that are known, not in memory, and one too many to be listed."""
    lines: list[LineOverview]
    nodes: list[NodeStatus]
