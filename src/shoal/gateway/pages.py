"""What is answered without a model: health, readiness, listings, metrics, the console. Reads, never changes."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import parse_qs

import msgspec

from shoal.catalog import Card, Model
from shoal.catalog.variants import variants_of
from shoal.dialects import Reply
from shoal.gateway import capacity, overview
from shoal.gateway.overview import Counts
from shoal.observe import metrics
from shoal.protocol.errors import ModelNotFound, QueueUnavailable
from shoal.protocol.facts import Facts
from shoal.protocol.status import ModelStatus, NodeStatus
from shoal.queue import Depth, Queue, gauges
from shoal.version import __version__

States = Callable[[], Mapping[str, ModelStatus]]
_POLICY = "default-src 'self' 'unsafe-inline'; img-src data:; frame-ancestors 'none'"


class Listing(Protocol):
    def models(self) -> dict[str, Model]: ...
    def cards(self) -> dict[str, Card]: ...
    def resolve(self, name: str) -> Model: ...


class Page(msgspec.Struct, frozen=True):
    """`answer` gets the path and the raw query string; so does `for_known`, for those with a key."""

    name: str
    answer: Any
    needs_key: bool = True
    for_known: Any = None


class Pages:
    """`lacking` says what keeps requests from being served, "" for nothing; `console` is the page at `/`;
    `nodes` are those that compute, as they last told of themselves.
    """

    def __init__(
        self,
        listing: Listing,
        states: States,
        queue: Queue,
        lacking: Callable[[], str],
        console: bytes,
        nodes: Callable[[], list[NodeStatus]] = list,
    ) -> None:
        self._listing = listing
        self._states = states
        self._queue = queue
        self._lacking = lacking
        self._console = console
        self._nodes = nodes
        self._began = time.time()
        self.counts = Counts()
        self._exact = {
            "/livez": Page("livez", self._live, needs_key=False),
            "/healthz": Page("healthz", self._live, needs_key=False),
            "/readyz": Page("readyz", self._readiness, needs_key=False),
            "/health": Page("health", self._counts, needs_key=False, for_known=self._health),
            "/info": Page("info", self._info),
            "/v1/models": Page("models", self._models),
            "/metrics": Page("metrics", self._metrics),
            "/status": Page("status", self._status),
            "/": Page("console", self._page, needs_key=False),
        }
        self._model_page = Page("model", self._model)

    def find(self, method: str, path: str) -> Page | None:
        if method not in ("GET", "HEAD"):
            return None
        if path.startswith("/v1/models/") and len(path) > len("/v1/models/"):
            return self._model_page
        return self._exact.get(path)

    def has_node(self) -> bool:
        """Whether anybody computes."""
        return bool(self._nodes())

    async def _live(self, path: str, query: bytes) -> Reply:
        return _text(200, "ok")

    async def _readiness(self, path: str, query: bytes) -> Reply:
        lacking = self._lacking()
        return _text(503, f"not ready: {lacking}") if lacking else _text(200, "ready")

    async def _counts(self, path: str, query: bytes) -> Reply:
        """Status for TEI's clients, and the counts that the native SDK reads."""
        return self._well({"workers": []})

    async def _health(self, path: str, query: bytes) -> Reply:
        """With what the SDK reads of each node."""
        workers = capacity.workers(self._nodes())
        kinds = sorted({worker["gpu"] for worker in workers})
        return self._well({"workers": workers, "configured_gpu_types": kinds, "live_gpu_types": kinds})

    def _well(self, more: dict[str, Any]) -> Reply:
        ready = not self._lacking()
        body = {"type": "gateway", "status": "healthy" if ready else "not ready", "cluster": self._summary()}
        return _json(200 if ready else 503, body | more)

    def _summary(self) -> dict[str, Any]:
        return capacity.summary(self._nodes(), self._states(), self.counts.answered_per_s)

    async def cluster_status(self) -> bytes:
        """What `/ws/cluster-status` says once a second."""
        nodes, states, depths = self._nodes(), self._states(), await self._depths()
        return msgspec.json.encode(
            {
                "timestamp": time.time(),
                "cluster": self._summary(),
                "workers": capacity.workers(nodes),
                "models": capacity.models(self._with_variants(states), nodes, states, depths),
            }
        )

    async def _depths(self) -> Mapping[str, Depth]:
        """None while the queue server is away: whoever looks wants to see the rest."""
        try:
            return await self._queue.depths()
        except QueueUnavailable:
            return {}

    async def _info(self, path: str, query: bytes) -> Reply:
        """The model that TEI's routes answer with, in TEI's words. Raises ModelNotFound where there is none."""
        models = self._in_order()
        if not models:
            raise ModelNotFound("there is no model here; `shoal add NAME` brings one")
        model, facts = models[0], models[0].facts
        labels = dict(enumerate(facts.labels or ("LABEL_0",)))
        kind: dict[str, Any] = {"embedding": {"pooling": facts.pooling}}
        if facts.reads_pairs:
            names = {name: index for index, name in labels.items()}
            kind = {"classifier" if facts.labels else "reranker": {"id2label": labels, "label2id": names}}
        return _json(
            200,
            {
                "model_id": model.name,
                "model_sha": model.card.revision,
                "model_dtype": capacity.status_of(model, self._states()).dtype or None,
                "model_type": kind,
                "max_input_length": facts.max_tokens,
                "auto_truncate": True,
                "version": __version__,
            },
        )

    async def _page(self, path: str, query: bytes) -> Reply:
        headers = (
            ("content-type", "text/html; charset=utf-8"),
            ("content-security-policy", _POLICY),
            ("x-content-type-options", "nosniff"),
        )
        return Reply(200, headers, self._console)

    async def _metrics(self, path: str, query: bytes) -> Reply:
        metrics.QUEUE_JOBS.clear()
        metrics.QUEUE_OLDEST.clear()
        for line, depth in (await self._depths()).items():
            metrics.QUEUE_JOBS.labels(line).set(depth.jobs)
            metrics.QUEUE_OLDEST.labels(line).set(time.time() - depth.oldest)
        gauges.show(self._nodes(), self._states())
        return Reply(200, (("content-type", "text/plain; version=0.0.4; charset=utf-8"),), metrics.page())

    async def _models(self, path: str, query: bytes) -> Reply:
        states = self._states()
        found = [self._described(model, states) for model in self._in_order()]
        if parse_qs(query.decode("latin-1")).get("catalog") == ["1"]:
            here = {entry["name"] for entry in found}
            found += [_carded(card) for name, card in self._listing.cards().items() if name not in here]
        return _json(200, {"object": "list", "data": found, "models": found})

    async def _model(self, path: str, query: bytes) -> Reply:
        model = self._listing.resolve(path.removeprefix("/v1/models/"))
        return _json(200, self._described(model, self._states()))

    async def _status(self, path: str, query: bytes) -> Reply:
        states, nodes, depths = self._states(), self._nodes(), await self._depths()
        known = [(model, capacity.status_of(model, states)) for model in self._with_variants(states)]
        listed = overview.listed(known, depths)
        models = [
            self._described(model, states)
            | {"status": status, "queued_jobs": depths[model.name].jobs if model.name in depths else 0}
            for model, status in listed
        ]
        totals = {
            "uptime_s": round(time.time() - self._began, 1),
            "version": __version__,
            "ready": not self._lacking(),
            "lacking": self._lacking(),
            "traffic": self.counts.traffic(metrics.refusals()),
            "unlisted": len(known) - len(listed),
        }
        lines = overview.lines(depths, nodes, time.time())
        return _json(200, totals | {"models": models, "lines": lines, "nodes": nodes})

    def _in_order(self) -> list[Model]:
        """The defaults first, encoders before the rest, then by name; adapters after their base."""
        models = self._listing.models()

        def key(model: Model) -> tuple[bool, tuple[str, ...], str, bool, str]:
            whole = models.get(model.card.base, model)
            return not whole.card.default, whole.facts.tasks, whole.name, bool(model.card.base), model.name

        return sorted(models.values(), key=key)

    def _with_variants(self, states: Mapping[str, ModelStatus]) -> list[Model]:
        """Each model, then those of its variants that were ever asked for here."""
        found, asked = [], {name.rpartition(":")[0] for name in states if ":" in name}
        for model in self._in_order():
            found.append(model)
            if model.name in asked:
                variants = (
                    msgspec.structs.replace(model, variant=v) for v in variants_of(model.card, model.facts)
                )
                found += [variant for variant in variants if variant.name in states]
        return found

    def _described(self, model: Model, states: Mapping[str, ModelStatus]) -> dict[str, Any]:
        """One body for OpenAI's clients (id, object, …) and for the native ones (name, state, …)."""
        status = capacity.status_of(model, states)
        facts = model.facts
        variants = variants_of(model.card, facts)
        return {
            "id": model.shown,
            "object": "model",
            "created": 0,
            "owned_by": model.name.partition("/")[0],
            "name": model.shown,
            "version": model.version or None,
            "base": model.card.base or None,
            "loaded": status.state == "ready",
            "state": capacity.STATES.get(status.state, status.state),
            "last_error": {"message": status.failure} if status.failure else None,
            "tasks": list(facts.tasks),
            "inputs": ["text"],
            "outputs": [each for task in facts.tasks for each in (facts.kinds if task == "encode" else (task,))],
            "dims": _dims(facts),
            "labels": list(facts.labels),
            "matryoshka": sorted(facts.matryoshka),
            "max_sequence_length": facts.max_tokens,
            "prompts": facts.prompts,
            "default_prompt": facts.default_prompt,
            "revision": model.card.revision,
            "verified": model.card.verified,
            "licence": model.card.licence,
            "dtype": status.dtype,
            "runtime": status.runtime,
            "tolerance": status.tolerance or (variants[model.variant] if model.variant else model.card).tolerance,
            "variants": {} if model.variant else variants,
            "pinned": status.pinned,
            "memory_bytes": status.memory_bytes,
            "size_bytes": model.size_bytes,
        }


def _dims(facts: Facts) -> dict[str, int]:
    """The width of each kind of vector, as far as it is known without the model's files."""
    dims = {"dense": facts.dims, "multivector": facts.multivector.dims if facts.multivector else 0}
    return {kind: width for kind, width in dims.items() if width}


def _carded(card: Card) -> dict[str, Any]:
    return {
        "id": card.name, "object": "model", "created": 0, "owned_by": card.name.partition("/")[0],
        "name": card.name, "loaded": False, "state": "not here", "add": f"shoal add {card.name}",
        "revision": card.revision, "verified": card.verified, "licence": card.licence,
    }  # fmt: skip


def _text(status: int, text: str) -> Reply:
    return Reply(status, (("content-type", "text/plain; charset=utf-8"),), text.encode())


def _json(status: int, body: Any) -> Reply:
    return Reply(status, (("content-type", "application/json"),), msgspec.json.encode(body))
