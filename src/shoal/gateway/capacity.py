"""Nodes and models in the shape that sie-sdk reads from `/health` and `/ws/cluster-status`. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.catalog import Model
from shoal.protocol.status import ModelStatus, NodeStatus
from shoal.queue import Depth

STATES = {"absent": "available", "ready": "loaded", "stopping": "unloading"}
_GPUS = ("cuda", "mps")
_ABSENT = ModelStatus(state="absent")


def status_of(model: Model, states: Mapping[str, ModelStatus]) -> ModelStatus:
    """What a model is doing. An adapter is ready where a ready base has it in memory; its base's bytes are not its
    own."""
    if not model.card.base:
        return states.get(model.name, _ABSENT)
    base = states.get(model.card.base, _ABSENT)
    here = base.adapters.get(model.name)
    return ModelStatus(
        state=here if here is not None and (here != "ready" or base.state == "ready") else "absent",
        runtime=base.runtime, device=base.device, dtype=base.dtype, tolerance=base.tolerance,
    )  # fmt: skip


def summary(nodes: Sequence[NodeStatus], states: Mapping[str, ModelStatus], per_second: float) -> dict[str, Any]:
    """What the SDK calls a cluster's summary: counts that name nobody."""
    return {
        "worker_count": len(nodes),
        "gpu_count": sum(len(_gpus(node)) for node in nodes),
        "models_loaded": sum(status.state == "ready" for status in states.values()),
        "total_qps": per_second,
    }


def workers(nodes: Sequence[NodeStatus]) -> list[dict[str, Any]]:
    return [_worker(node) for node in nodes]


def models(
    all_models: Sequence[Model],
    nodes: Sequence[NodeStatus],
    states: Mapping[str, ModelStatus],
    depths: Mapping[str, Depth],
) -> list[dict[str, Any]]:
    def holders(model: Model) -> list[NodeStatus]:
        return [node for node in nodes if status_of(model, node.models).state == "ready"]

    return [
        {
            "name": model.shown,
            "state": STATES.get(state := status_of(model, states).state, state),
            "worker_count": len(holders(model)),
            "gpu_types": sorted({_kind(node) for node in holders(model)}),
            "total_queue_depth": depths[model.name].jobs if model.name in depths else 0,
        }
        for model in all_models
    ]


def _worker(node: NodeStatus) -> dict[str, Any]:
    healthy, gpus = not node.lacking and not node.draining, len(_gpus(node))
    return {
        "name": node.node,
        "url": "",  # nobody speaks to a node by HTTP: it pulls
        "gpu": _kind(node),
        "gpu_count": gpus,
        "ready_gpu_slots": max(1, gpus) if healthy else 0,
        "healthy": healthy,
        "queue_depth": sum(line.jobs_in_hand for line in node.lines.values()),
        "pending_cost": sum(status.waiting_items for status in node.models.values()),
        "inflight_batches": sum(status.flying_items > 0 for status in node.models.values()),
        "loaded_models": sorted(name for name, status in node.models.items() if status.state == "ready"),
        "memory_used_bytes": node.memory_used_bytes,
        "memory_total_bytes": node.memory_budget_bytes,
        "bundle": node.pool,
        "bundle_config_hash": "",
    }


def _gpus(node: NodeStatus) -> list[str]:
    return [device.name or device.kind for device in node.devices if device.kind in _GPUS]


def _kind(node: NodeStatus) -> str:
    gpus = _gpus(node)
    return gpus[0].lower() if gpus else "cpu"
