"""The metrics, in Prometheus' form. Names and labels stand here and nowhere else.

What is counted is counted where it happens: a gateway's page and a node's each show their own part. What nodes
tell of themselves (`shoal_node_…`) any page can show.
"""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from shoal.observe.counting import Counts, Spread

REGISTRY = CollectorRegistry()
_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)

_requests = Counts("shoal_requests", "Requests answered.", ["route", "status"], REGISTRY)
_request_seconds = Spread(
    "shoal_request_seconds", "From the last byte of a request's head to its answer.", "route", _SECONDS, REGISTRY
)
REFUSALS = Counter("shoal_refusals", "Requests refused, by the error's code.", ["code"], registry=REGISTRY)
IN_FLIGHT = Gauge("shoal_requests_in_flight", "Requests admitted and not yet answered.", registry=REGISTRY)
CONNECTIONS = Gauge("shoal_connections", "Open client connections.", registry=REGISTRY)
QUEUE_JOBS = Gauge("shoal_queue_jobs", "Jobs waiting in a line.", ["model"], registry=REGISTRY)
QUEUE_OLDEST = Gauge("shoal_queue_oldest_seconds", "Age of a line's oldest job.", ["model"], registry=REGISTRY)
_queue_seconds = Spread(
    "shoal_queue_wait_seconds", "How long jobs had waited when a node took them.", "model", _SECONDS, REGISTRY
)
_items = Counts("shoal_items", "Items answered, failed ones included.", ["model", "task"], REGISTRY)
_tokens = Counts("shoal_tokens_computed", "Tokens computed, padding included.", ["model"], REGISTRY)
_useful = Counts("shoal_tokens_useful", "Tokens computed, padding excluded.", ["model"], REGISTRY)
_batches = Counts("shoal_batches", "Micro-batches computed.", ["model"], REGISTRY)
_batch_items = Spread(
    "shoal_batch_items", "Items in a micro-batch.", "model", (1, 2, 4, 8, 16, 32, 64, 128, 512), REGISTRY
)
_batch_fill = Spread(
    "shoal_batch_fill", "Items or tokens of a micro-batch over what it may hold, whichever is fuller.", "model",
    (0.1, 0.25, 0.5, 0.75, 0.9, 1), REGISTRY,
)  # fmt: skip
_compute_seconds = Counts("shoal_compute_seconds", "Seconds of compute.", ["model"], REGISTRY)
MODEL_STATE = Gauge("shoal_model_ready", "1 where a model is in memory.", ["model"], registry=REGISTRY)
MODEL_BYTES = Gauge(
    "shoal_model_memory_bytes", "Measured memory of a model's process.", ["model"], registry=REGISTRY
)
RUNTIME_DEATHS = Counter("shoal_runtime_deaths", "Runtime processes that died unasked.", registry=REGISTRY)

NODES = Gauge("shoal_nodes", "Nodes heard of lately, by whether they take work.", ["state"], registry=REGISTRY)
NODE_MEMORY = Gauge("shoal_node_memory_bytes", "Measured memory of a node's models.", ["node"], registry=REGISTRY)
NODE_BUDGET = Gauge(
    "shoal_node_memory_budget_bytes", "What a node's models may take.", ["node"], registry=REGISTRY
)
_OF_LINES = {
    "jobs_in_hand": ("shoal_node_jobs_in_hand", "Jobs that a node has taken and not answered."),
    "useful_tokens_per_s": ("shoal_node_useful_tokens_per_second", "Over the last seconds, without padding."),
    "items_per_s": ("shoal_node_items_per_second", "Over the last seconds."),
    "busy_share": ("shoal_node_busy_share", "Compute seconds over seconds and streams, of the last seconds."),
    "fill": ("shoal_node_batch_fill", "Mean fill of the last seconds' micro-batches."),
    "padding": ("shoal_node_padding_share", "Padding among the tokens computed in the last seconds."),
    "wait_s": ("shoal_node_queue_wait_seconds", "Mean wait of the jobs taken in the last seconds."),
    "given_back": ("shoal_node_given_back", "Jobs returned to the queue unstarted, since the node began."),
    "redelivered": ("shoal_node_redelivered", "Jobs that came not for the first time, since it began."),
    "claimed_loads": ("shoal_node_claimed_loads", "Loads that a node claimed, since it began."),
    "adapters": ("shoal_node_adapters", "LoRA adapters that a node's replicas of a model hold in memory."),
}
"""By the field of a node's word about a line (protocol/status.py)."""
_LINES = {
    field: Gauge(name, words, ["node", "model"], registry=REGISTRY) for field, (name, words) in _OF_LINES.items()
}


def answered(route: str, status: int, seconds: float) -> None:
    """Count one request."""
    _requests.add(1, route, str(status))
    _request_seconds.add(seconds, route)


def refused(code: str) -> None:
    """Count one refusal, where it is decided."""
    REFUSALS.labels(code).inc()


def refusals() -> dict[str, int]:
    """How many of each code so far."""
    found: dict[str, int] = {}
    for metric in REFUSALS.collect():
        found |= {s.labels["code"]: int(s.value) for s in metric.samples if s.name == "shoal_refusals_total"}
    return found


def waited(model: str, seconds: float) -> None:
    """Count one job that a node took."""
    _queue_seconds.add(seconds, model)


def items(model: str, task: str, count: int) -> None:
    """Count the items of one answer."""
    _items.add(count, model, task)


def batch(model: str, items: int, tokens: int, useful: int, fill: float, seconds: float) -> None:
    """Count one micro-batch: `useful` of its tokens were no padding."""
    _batches.add(1, model)
    _batch_items.add(items, model)
    _batch_fill.add(fill, model)
    _tokens.add(tokens, model)
    _useful.add(useful, model)
    _compute_seconds.add(seconds, model)


def forget_nodes() -> None:
    """Before all that are there are told of: those that went leave nothing behind."""
    for gauge in (NODES, NODE_MEMORY, NODE_BUDGET, *_LINES.values()):
        gauge.clear()


def node(name: str, memory: int, budget: int, lines: Mapping[str, Mapping[str, float]]) -> None:
    """What one node told: bytes, and of each line the fields of `_OF_LINES`."""
    NODE_MEMORY.labels(name).set(memory)
    NODE_BUDGET.labels(name).set(budget)
    for line, told in lines.items():
        for field, gauge in _LINES.items():
            gauge.labels(name, line).set(told.get(field, 0))


def page() -> bytes:
    """Everything, as Prometheus scrapes it."""
    return generate_latest(REGISTRY)
