"""The virtual devices of the cluster bench, what is asked of them, and the most that one of them can do.

A device is like an L4 with a small encoder: 3 ms a batch and 150,000 tokens a second. Time on it is dilated, so
that two cores can host eight of them; the latency target is dilated with it.
"""

import math
import random
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from shoal.catalog import Card, Model, Virtual
from shoal.catalog.store import Store
from shoal.families import Prepared
from shoal.lab import mixes
from shoal.lab.load import Request
from shoal.protocol.facts import Profile
from shoal.protocol.items import Item
from shoal.runtimes import open_runtime
from sides import ROUTE

SECONDS, TOKENS_PER_SECOND = 0.003, 150_000
MEDIAN, P99, LONGEST = 30, 400, 512
TARGET_S = 0.1
STALL_SHARE, STALL_S = 0.005, 0.2
BATCH_TOKENS = 8192
"""About what a device does in half of the latency target: the cap of a profile tuned for it."""
SHAPES = ((256, 64), (64, 256), (32, 512))
"""Texts and tokens of each, of the batches that the peak is looked for with: twice as many tokens as the cap."""
DIMS = 8
"""Vectors are short: what they cost to write is measured elsewhere (road.py)."""


def card(name: str, dilation: float, *, padded: bool, stalls: bool = False) -> Card:
    source = Virtual(
        seconds=SECONDS,
        seconds_per_token=1 / TOKENS_PER_SECOND,
        padded=padded,
        dilation=dilation,
        stall_share=STALL_SHARE if stalls else 0.0,
        stall_seconds=STALL_S if stalls else 0.0,
        serial=True,
        batch_tokens=BATCH_TOKENS,
    )
    facts = {"tasks": ["encode"], "family": "virtual", "max_tokens": LONGEST, "dims": DIMS, "normalize": True}
    return Card(name=name, source=source, facts=facts)


def aim(dilation: float) -> list[str]:
    """A node's options: its target is as much later as its devices are slower."""
    return ["--latency-ms", f"{TARGET_S * dilation * 1e3:g}"]


def add(home: Path, *cards: Card) -> list[Model]:
    store = Store(home)
    return [store.add(each) for each in cards]


def lognormal(rng: random.Random) -> int:
    """Tokens of a text: median 30, the 99th of 100 has 400, none more than the model reads."""
    sigma = math.log(P99 / MEDIAN) / 2.326
    return min(LONGEST, max(mixes.MARKERS + 1, round(rng.lognormvariate(math.log(MEDIAN), sigma))))


def lognormal_requests(
    models: Sequence[str], count: int = 8192, seed: int = 1, *, native: bool = False
) -> list[Request]:
    """One text each. Of several models the k-th is asked for in proportion to 1/k (Zipf). `native`: by the route
    that has the model in its path, where a router can read it; else by OpenAI's, which every router knows."""
    make = native_request if native else request
    rng = random.Random(seed)
    shares = [1 / (rank + 1) for rank in range(len(models))]
    asked = rng.choices(models, shares, k=count)
    texts = mixes.texts_of(lognormal, count, seed)
    return [make([text], model) for text, model in zip(texts, asked, strict=True)]


def request(texts: Sequence[str], model: str) -> Request:
    body = {"model": model, "input": texts[0] if len(texts) == 1 else texts, "encoding_format": "base64"}
    return Request(ROUTE, msgspec.json.encode(body), items=len(texts), tokens=_tokens(texts))


def native_request(texts: Sequence[str], model: str) -> Request:
    body = msgspec.json.encode({"items": texts})
    return Request(f"/v1/encode/{model}", body, items=len(texts), tokens=_tokens(texts))


def _tokens(texts: Sequence[str]) -> int:
    return sum(len(text.split()) + mixes.MARKERS for text in texts)


def mean_tokens(requests: Sequence[Request]) -> float:
    return sum(asked.tokens for asked in requests) / len(requests)


def peak(model: Model, batches: int = 2) -> float:
    """Useful tokens a second of one device, measured: full batches of texts of one length, of the best shape."""
    runtime = open_runtime(model.folder, model.facts, Profile(runtime="virtual"))
    best = 0.0
    for count, tokens in SHAPES:
        entries = runtime.prepare([Item("word " * (tokens - mixes.MARKERS))] * count)
        batch = [entry for entry in entries if isinstance(entry, Prepared)]
        began = time.perf_counter()
        for _ in range(batches):
            runtime.run(batch, 0)
        best = max(best, batches * count * tokens / (time.perf_counter() - began))
    return best
