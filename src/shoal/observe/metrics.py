"""The first dozen metrics, in Prometheus' form. Names and labels stand here and nowhere else."""

import functools

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

REGISTRY = CollectorRegistry()
_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)

REQUESTS = Counter("shoal_requests", "Requests answered.", ["route", "status"], registry=REGISTRY)
REQUEST_SECONDS = Histogram(
    "shoal_request_seconds", "From the last byte of a request's head to its answer.", ["route"],
    buckets=_SECONDS, registry=REGISTRY,
)  # fmt: skip
IN_FLIGHT = Gauge("shoal_requests_in_flight", "Requests admitted and not yet answered.", registry=REGISTRY)
CONNECTIONS = Gauge("shoal_connections", "Open client connections.", registry=REGISTRY)
QUEUE_JOBS = Gauge("shoal_queue_jobs", "Jobs waiting in a line.", ["model"], registry=REGISTRY)
QUEUE_OLDEST = Gauge("shoal_queue_oldest_seconds", "Age of a line's oldest job.", ["model"], registry=REGISTRY)
ITEMS = Counter("shoal_items", "Items answered, failed ones included.", ["model", "task"], registry=REGISTRY)
TOKENS = Counter("shoal_tokens_computed", "Tokens computed, padding included.", ["model"], registry=REGISTRY)
BATCHES = Counter("shoal_batches", "Micro-batches computed.", ["model"], registry=REGISTRY)
BATCH_ITEMS = Histogram(
    "shoal_batch_items", "Items in a micro-batch.", ["model"],
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 512), registry=REGISTRY,
)  # fmt: skip
COMPUTE_SECONDS = Counter("shoal_compute_seconds", "Seconds of compute.", ["model"], registry=REGISTRY)
MODEL_STATE = Gauge("shoal_model_ready", "1 where a model is in memory.", ["model"], registry=REGISTRY)
MODEL_BYTES = Gauge(
    "shoal_model_memory_bytes", "Measured memory of a model's process.", ["model"], registry=REGISTRY
)
RUNTIME_DEATHS = Counter("shoal_runtime_deaths", "Runtime processes that died unasked.", registry=REGISTRY)


# Finding a metric by its labels takes longer than counting: those on everyone's way are found once.
_requests = functools.cache(REQUESTS.labels)
_request_seconds = functools.cache(REQUEST_SECONDS.labels)
_items = functools.cache(ITEMS.labels)
_batches = functools.cache(BATCHES.labels)
_batch_items = functools.cache(BATCH_ITEMS.labels)
_tokens = functools.cache(TOKENS.labels)
_compute_seconds = functools.cache(COMPUTE_SECONDS.labels)


def answered(route: str, status: int, seconds: float) -> None:
    """Count one request."""
    _requests(route, status).inc()
    _request_seconds(route).observe(seconds)


def items(model: str, task: str, count: int) -> None:
    """Count the items of one answer."""
    _items(model, task).inc(count)


def batch(model: str, items: int, tokens: int, seconds: float) -> None:
    """Count one micro-batch."""
    _batches(model).inc()
    _batch_items(model).observe(items)
    _tokens(model).inc(tokens)
    _compute_seconds(model).inc(seconds)


def page() -> bytes:
    """Everything, as Prometheus scrapes it."""
    return generate_latest(REGISTRY)
