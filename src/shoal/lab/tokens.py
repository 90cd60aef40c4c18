"""How many tokens a text has for a model, as exactly as can be known here, and how exact that is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from shoal.catalog.store import Store
from shoal.lab.mixes import MARKERS, Asked, Chat, Pairs, Texts
from shoal.protocol.errors import ModelNotFound

RATIO = 1.3  # tokens a word of English prose in common vocabularies; mixes of one-token words say 1.0


class _Body(msgspec.Struct, frozen=True):
    """Fields of foreign APIs that hold a request's texts."""

    input: str | list[Any] = ""
    documents: list[Any] = []
    items: list[Any] = []
    texts: list[Any] = []


class Counter(msgspec.Struct, frozen=True):
    """`text` and `pair` count with the model's markers; `source` says in words how."""

    text: Callable[[str], int]
    pair: Callable[[str, str], int]
    source: str

    def of(self, asked: Asked) -> tuple[int, int]:
        """Items and tokens of one request."""
        if isinstance(asked, Texts):
            return len(asked.texts), sum(map(self.text, asked.texts))
        if isinstance(asked, Pairs):
            return len(asked.documents), sum(self.pair(asked.query, document) for document in asked.documents)
        if isinstance(asked, Chat):
            said = (message.get("content") for message in asked.messages)
            return 1, sum(self.text(content) for content in said if isinstance(content, str))
        return self._of_body(asked.body)

    def _of_body(self, body: bytes) -> tuple[int, int]:
        """A raw body's texts, wherever an API has them; one item and no tokens where none are found."""
        try:
            given = msgspec.json.decode(body, type=_Body)
        except msgspec.MsgspecError:
            return 1, 0
        texts = given.input or given.documents or given.items or given.texts or []
        texts = [texts] if isinstance(texts, str) else texts
        return max(1, len(texts)), sum(self.text(text) for text in texts if isinstance(text, str))


def by_words(ratio: float) -> Counter:
    """Without a tokenizer: words × `ratio`, and two markers."""

    def text(text: str) -> int:
        return round(len(text.split()) * ratio) + MARKERS

    def pair(query: str, document: str) -> int:
        return text(query) + text(document) - MARKERS // 2

    return Counter(
        text, pair, f"words ({ratio:g} a word, and {MARKERS} a text), for want of the model's tokenizer"
    )


def by_tokenizer(path: Path, limit: int = 0) -> Counter:
    """With the `tokenizer.json` at `path`; a model reads no more than `limit` tokens of a text (0: all)."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()

    def cut(count: int) -> int:
        return min(count, limit) if limit else count

    def text(text: str) -> int:
        return cut(len(tokenizer.encode(text).ids))

    def pair(query: str, document: str) -> int:
        return cut(len(tokenizer.encode(query, document).ids))

    bounded = f", at most {limit} of a text" if limit else ""
    return Counter(text, pair, f"the model's own tokenizer{bounded}")


def counter_for(model: str, ratio: float, store: Store | None = None) -> Counter:
    """By the tokenizer of `model`, or of an adapter's base, if it is installed here, else by words."""
    store = store or Store()
    try:
        found = store.resolve(model)
        found = store.resolve(found.card.base) if found.card.base else found
    except ModelNotFound:
        return by_words(ratio)
    path = found.folder / "tokenizer.json"
    return by_tokenizer(path, found.facts.max_tokens) if path.is_file() else by_words(ratio)
