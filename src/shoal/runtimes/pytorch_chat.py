"""Pairs as a language model that scores reads them: through the chat template in its files, laid out by
sentence-transformers, which keeps the template's end where a text is cut.

Knows the library's `Transformer` and the limits of ours. Does not know batches: those are padded elsewhere.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.families import Prepared, Read
from shoal.families.tokenize import TextReader, load_tokenizer
from shoal.protocol.errors import EmptyInput, InputTooLong, InvalidInput, ModelLoadFailed, ShoalError, over_limit
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item

log = logging.getLogger("shoal.pytorch")


class ChatReader:
    def __init__(self, transformer: Any, folder: Path, facts: Facts) -> None:
        """Raises ModelLoadFailed where the template carries no query and document."""
        self._transformer, self._limit = transformer, facts.max_tokens
        self._texts = TextReader(load_tokenizer(folder), facts)
        self.vocabulary = max(self._texts.vocabulary, len(transformer.tokenizer))
        try:
            self._ids("", "a", "a")
        except Exception as e:  # a template raises what it likes, and the library a ValueError
            log.exception("a chat template cannot be used")
            raise ModelLoadFailed(f"this model's chat template cannot be used: {e}") from e

    def prepare(self, items: Sequence[Item]) -> list[Read]:
        return [self._prepare(item) for item in items]

    def _prepare(self, item: Item) -> Read:
        if "tokens" in item.kinds:
            return self._texts.prepare([item])[0]
        refusal = _refusal(item)
        if refusal is not None:
            return refusal
        assert item.pair is not None, "refused above"
        limit = min(item.max_tokens or self._limit, self._limit)
        ids = self._ids(item.prompt, item.text, item.pair)
        if len(ids) <= limit:
            return Prepared(item, ids, [0] * len(ids))
        least = len(self._ids(item.prompt, "", ""))
        if least >= limit:
            return InvalidInput(
                f"a limit of {limit} tokens leaves no room beside the template, which takes {least}"
            )
        if item.truncate == "error":
            return over_limit(
                InputTooLong, "the input", seen=len(ids), limit=limit, setting="truncate=end", unit="tokens"
            )
        return Prepared(item, self._ids(item.prompt, item.text, item.pair, limit), [0] * limit, truncated=True)

    def _ids(self, prompt: str, query: str, document: str, limit: int = 0) -> list[int]:
        """The token ids of one pair with the template around it, cut to `limit` where that is given.

        As messages, because of bare strings the library takes those that look like paths for pictures.
        """
        is_flat = self._transformer.input_formatter.message_format == "flat"
        messages = [
            {"role": role, "content": text if is_flat else [{"type": "text", "text": text}]}
            for role, text in (("query", query), ("document", document))
        ]
        bounds: dict[str, Any] = {"truncation": True, "max_length": limit} if limit else {"truncation": False}
        features = self._transformer.preprocess(
            [messages], prompt=prompt or None, processing_kwargs={"chat_template": {"padding": False, **bounds}}
        )
        ids: list[int] = features["input_ids"][0].tolist()
        return ids


def _refusal(item: Item) -> ShoalError | None:
    if item.ids is not None or item.pair is None:
        return InvalidInput("this model scores a query and a document, both given as text")
    if item.truncate == "start":
        return InvalidInput(
            "this model's texts are cut at their end only; truncate=end or error", param="truncate"
        )
    if not item.text.strip():
        return EmptyInput("the query is empty")
    return None if item.pair.strip() else EmptyInput("the document is empty")
