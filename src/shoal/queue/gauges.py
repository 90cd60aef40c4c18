"""What nodes told last, as gauges: set before a page of metrics is drawn, by a gateway or by a node itself."""

from collections.abc import Mapping, Sequence

import msgspec

from shoal.observe import metrics
from shoal.protocol.status import ModelStatus, NodeStatus


def show(nodes: Sequence[NodeStatus], states: Mapping[str, ModelStatus]) -> None:
    """Nodes and models that are not among them leave nothing behind."""
    metrics.forget_nodes()
    for state in ("ready", "not ready", "leaving"):
        metrics.NODES.labels(state).set(sum(_state(node) == state for node in nodes))
    for node in nodes:
        lines = {line: msgspec.structs.asdict(status) for line, status in node.lines.items()}
        metrics.node(node.node, node.memory_used_bytes, node.memory_budget_bytes, lines)
    metrics.MODEL_STATE.clear()
    metrics.MODEL_BYTES.clear()
    for name, status in states.items():
        metrics.MODEL_STATE.labels(name).set(status.state == "ready")
        metrics.MODEL_BYTES.labels(name).set(status.memory_bytes)


def _state(node: NodeStatus) -> str:
    return "leaving" if node.draining else "not ready" if node.lacking else "ready"
