"""What a model is put to the test with: questions and passages of our own, in a dozen languages, and a user's
pairs; from one word to more than the model reads. Knows texts and facts; not what is compared.
"""

import random
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated

import msgspec

from shoal.protocol.errors import InvalidInput
from shoal.protocol.facts import Facts

LONGEST = 2048
"""Tokens, about, of the longest text: beyond it attention takes most of the time, and shows nothing new."""
CANDIDATES = 24
"""Documents that a cross-encoder reads with each query."""
MOST_PAIRS, MOST_READ = 1000, 96
"""Of a user's pairs so many are drawn; fewer for a cross-encoder, which reads `CANDIDATES` times as many texts."""
_OURS = "gate_pairs.jsonl"
_SHORT = (
    "a", "Yes", "2024", "-17.5 %", "fish", "Donaudampfschifffahrt", "hello hello hello hello", "🙂 👍🏽", "?!",
    "№ 7 → 8",
)  # fmt: skip


class Pair(msgspec.Struct, frozen=True):
    """A line of a user's file: a query and the document that answers it."""

    query: Annotated[str, msgspec.Meta(min_length=1)]
    document: Annotated[str, msgspec.Meta(min_length=1)]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """`candidates[i]` are the documents that query i is scored with, the one that answers it first. `labelled`
    counts, from the front, the queries that a user has labelled: of ours, the answers are too easily told."""

    queries: list[str]
    documents: list[str]
    candidates: list[list[int]]
    labelled: int = 0


def make_trial(facts: Facts, pairs: Sequence[Pair] = ()) -> Trial:
    """Some of `pairs`, all of ours, and passages of every length up to a little more than the model reads."""
    ours = msgspec.json.Decoder(Pair).decode_lines(resources.files(__package__).joinpath(_OURS).read_bytes())
    rng = random.Random(2)  # noqa: S311 - texts, no secret
    drawn = rng.sample(list(pairs), min(len(pairs), MOST_READ if facts.reads_pairs else MOST_PAIRS))
    asked = [*drawn, *ours]
    documents = list(dict.fromkeys(pair.document for pair in asked))
    documents += _of_every_length([pair.document for pair in ours], facts.max_tokens)
    candidates = []
    for pair in asked:
        right = documents.index(pair.document)
        others = [number for number in range(len(documents)) if number != right]
        candidates.append([right, *(rng.sample(others, CANDIDATES - 1) if facts.reads_pairs else others)])
    return Trial(
        queries=[pair.query for pair in asked], documents=documents, candidates=candidates, labelled=len(drawn)
    )


def _of_every_length(passages: Sequence[str], max_tokens: int) -> list[str]:
    """Short oddities; then words of all passages, shuffled as wholes, at lengths that grow by about two thirds."""
    rng = random.Random(3)  # noqa: S311 - texts, no secret
    limit = min(max_tokens, LONGEST)
    texts, count = list(_SHORT), 2
    while count < 1.3 * limit:
        words: list[str] = []
        while len(words) < count:
            words += rng.choice(passages).split()
        texts.append(" ".join(words[:count]))
        count += count * 2 // 3
    return texts


def read_pairs(path: Path) -> list[Pair]:
    """JSON lines of `query` and `document`. Raises InvalidInput, naming the line."""
    pairs = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as e:
        raise InvalidInput(f"{path} cannot be read: {e.strerror}") from e
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                pairs.append(msgspec.json.decode(line, type=Pair))
            except (msgspec.DecodeError, UnicodeDecodeError) as e:
                raise InvalidInput(f"{path}:{number}: {e}; a line is an object of query and document") from e
    if not pairs:
        raise InvalidInput(f"{path} holds no pairs")
    return pairs
