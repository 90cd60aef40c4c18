"""score: documents cut into requests that share a query, and the scores of their answers ranked as one."""

from collections.abc import Mapping
from typing import TypedDict

import msgspec

from shoal.client import answers
from shoal.client.calls import Call, ask_part
from shoal.client.errors import ItemsFailed
from shoal.client.flow import Terms
from shoal.client.inputs import Item, Texts, chunked, encoded, listed
from shoal.protocol.errors import InvalidInput, ShoalError
from shoal.protocol.items import Truncate


class ScoreOptions(TypedDict, total=False):
    top_n: int | None
    """Only so many of the best; None means all."""
    raw: bool
    """Logits as they leave the model, before any activation."""
    instruction: str | None
    """Put this before the query, instead of a prompt."""
    prompt_name: str | None
    """Apply one of the model's prompts by its name."""
    label: str | None
    """Which output is the score, of a model with several."""
    truncate: Truncate
    """Of a document that is too long, cut off the "end" (the default) or the "start", or give an "error"."""


class Ranked(msgspec.Struct, frozen=True):
    """A document and its score. `index` is its place in what was asked, `id` its own if it came with one."""

    index: int
    score: float
    document: Item
    id: str | None = None


def score(
    terms: Terms,
    model: str,
    query: Item,
    documents: Texts,
    *,
    top_n: int | None = None,
    raw: bool = False,
    instruction: str | None = None,
    prompt_name: str | None = None,
    label: str | None = None,
    truncate: Truncate = "end",
) -> Call[list[Ranked]]:
    """All documents ranked; see `Client.score`. Raises InvalidInput for what cannot be sent."""
    if top_n is not None and top_n < 1:
        raise InvalidInput(f"top_n is {top_n}; it is at least 1, or None for all")
    inputs = listed(documents)[1]
    asked = encoded(query, "query")
    # The answer names documents by id alone, so ours are their places; the caller's own never travel.
    items = [encoded(document, f"documents[{index}]", id=str(index)) for index, document in enumerate(inputs)]
    options = {
        "raw": raw or None,
        "label": label,
        "prompt_name": prompt_name,
        "truncate": None if truncate == "end" else truncate,
    }
    fields = {
        "query": asked,
        "instruction": instruction or None,
        "options": {key: value for key, value in options.items() if value is not None} or None,
    }
    flows = [
        ask_part(terms, "score", model, fields | {"items": items[part]}, part, answers.scores)
        for part in chunked(items)
    ]

    def join(parts: list[list[float | ShoalError]]) -> list[Ranked]:
        found = [score for part in parts for score in part]
        failed = {index: score for index, score in enumerate(found) if isinstance(score, ShoalError)}
        ranked = [
            Ranked(index, score, inputs[index], _id(inputs[index]))
            for index, score in enumerate(found)
            if not isinstance(score, ShoalError)
        ]
        ranked.sort(key=lambda entry: -entry.score)
        if failed:
            raise ItemsFailed(failed, ranked, len(inputs))
        return ranked[:top_n]

    return Call(flows, join)


def _id(document: Item) -> str | None:
    return document.get("id") if isinstance(document, Mapping) else None
