"""A request through dialect and task as the node takes it, with a stand-in model that counts words."""

import re
import zlib
from collections.abc import Callable

import numpy as np

from shoal.dialects import Dialect, Reply, Timing, all_dialects
from shoal.protocol.envelope import Envelope
from shoal.protocol.errors import Fault, InputTooLong, ShoalError
from shoal.protocol.facts import Facts, MultiVector
from shoal.protocol.items import Item, Output
from shoal.protocol.tensors import Tensor
from shoal.tasks import Entry, task_named

EMBEDDER = Facts(
    tasks=("encode",),
    family="bert",
    files="safetensors",
    max_tokens=16,
    dims=12,
    matryoshka=(4, 8),
    prompts={"query": "query: ", "passage": "passage: "},
)
EVERY_KIND = Facts(
    tasks=("encode", "score"),
    family="bert",
    files="safetensors",
    max_tokens=16,
    dims=12,
    matryoshka=(4, 8),
    kinds=("dense", "sparse", "multivector"),
    multivector=MultiVector(dims=3),
    prompts={"query": "query: ", "passage": "passage: "},
)
NLI = Facts(
    tasks=("score",),
    family="cross",
    files="safetensors",
    max_tokens=16,
    labels=("contradiction", "entailment", "neutral"),
    activation="softmax",
)
RERANKER = Facts(tasks=("score",), family="cross", files="onnx", max_tokens=16)
TIMING = Timing(total_ms=12.5, queue_ms=1.25, tokenize_ms=0.5, compute_ms=7.75)
JSON = "application/json"


def compute(item: Item) -> Output:
    """A word is a token, two markers are added, 16 is the most; the numbers depend on all that is read."""
    if "tokens" in item.kinds:
        return _tokens(item)
    words = [str(i) for i in item.ids] if item.ids is not None else (item.prompt + item.text).split()
    words += (item.pair or "").split()
    if len(words) > 14 and item.truncate == "error":
        return Output(fault=InputTooLong("17 tokens, over 16").fault())
    rng = np.random.default_rng(zlib.crc32(" ".join(words[:14]).encode("utf-8", "replace")))
    values = rng.standard_normal(item.dims or 12).astype(np.float32)
    if item.normalize:
        values = values / np.linalg.norm(values)
    tensors = (
        _of_kinds(item, values, len(words[:14])) if item.pair is None else {"score": Tensor.of(values[0] * 4)}
    )
    return Output(tensors, tokens=min(len(words), 14) + 2, truncated=len(words) > 14)


def _tokens(item: Item) -> Output:
    found = [match.span() for match in re.finditer(r"\S+", item.text)]
    tensors = {
        "tokens.ids": Tensor.of(np.arange(len(found) + 2, dtype="<i4")),
        "tokens.places": Tensor.of(np.array([(-1, -1), *found, (-1, -1)], "<i4")),
    }
    texts = ["[CLS]", *item.text.split(), "[SEP]"]
    return Output(tensors, tokens=len(texts), texts=texts)


def _of_kinds(item: Item, values: "np.ndarray", words: int) -> dict[str, Tensor]:
    """The kinds asked for, all made from the dense one: its positive places, and a slice of it for each word."""
    found = {}
    if "dense" in item.kinds:
        found["dense"] = Tensor.of(values)
    if "sparse" in item.kinds:
        places = np.flatnonzero(values > 0).astype("<i4")
        found |= {"sparse.indices": Tensor.of(places), "sparse.values": Tensor.of(values[places])}
    if "multivector" in item.kinds:
        found["multivector"] = Tensor.of(np.stack([values[i % 9 : i % 9 + 3] for i in range(words)]))
    return found


def several_labels(item: Item) -> Output:
    """As `compute`, for a model with the three labels of NLI."""
    found = compute(item)
    score = found.tensors["score"].numpy().item()
    return Output({"score": Tensor.of(np.array([score, -score, 0], "<f4"))}, found.tokens, found.truncated)


def vector(text: str, **asked: object) -> "np.ndarray":
    return compute(Item(text, **asked)).tensors["dense"].numpy()


def answer(
    dialect: str,
    route: str,
    body: bytes,
    *,
    content_type: str = "",
    accept: str = "",
    compute: Callable[[Item], Output] = compute,
    facts: Facts | None = None,
) -> Reply:
    """What the client gets. Only a ShoalError is made a refusal: anything else is a defect and is raised."""
    speaks: Dialect = all_dialects()[dialect]
    (task_name,) = {each.task for each in speaks.routes if each.name == route}
    task = task_named(task_name)
    facts = facts or (EMBEDDER if task_name == "encode" else RERANKER)
    envelope = Envelope(
        id="r-1",
        task=task_name,
        model="org/m",
        line="org/m",
        dialect=dialect,
        route=route,
        deadline=0.0,
        received=0.0,
        content_type=content_type,
        accept=accept,
    )
    try:
        request = speaks.decode(envelope, body)
        entries = task.split(request, facts)
        outputs = [_answered(entry, compute) for entry in entries]
        return speaks.encode(envelope, request, task.join(request, facts, outputs), facts, TIMING)
    except ShoalError as error:
        return speaks.refuse(error, accept=accept)


def _answered(entry: Entry, compute: Callable[[Item], Output]) -> Output:
    match entry:
        case Item():
            return compute(entry)
        case Fault():
            return Output(fault=entry)
    return entry


def header(reply: Reply, name: str) -> str | None:
    return dict(reply.headers).get(name)
