"""Texts, pairs and token ids to a model's input ids: `tokenizer.json` decides the tokens, we decide the length.

The file's own truncation and padding are switched off. Limits count the markers. An over-long text is read only
as far as the limit needs (`families/excerpt.py`), yet its kept tokens are those that the whole text would give.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from shoal.families import Prepared, Read
from shoal.families.excerpt import Ask, Content, Excerpts
from shoal.families.sides import Sides
from shoal.protocol.errors import (
    EmptyInput,
    InputTooLong,
    InvalidInput,
    ModelLoadFailed,
    ShoalError,
    over_limit,
)
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item, Output
from shoal.protocol.tensors import Tensor


class TextReader:
    """Reads texts for an encoder; for a model that scores, pairs of texts, and single ones where it has labels."""

    def __init__(self, tokenizer: Tokenizer, facts: Facts) -> None:
        """Raises ModelLoadFailed where the tokenizer does not mark a text's ends as it would have to."""
        # The runtime's streams use every core already; the library's own threads would fight them.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        self._facts = facts
        self._tokenizer = tokenizer
        self._sides = Sides(tokenizer, facts)
        self._excerpts = Excerpts(tokenizer)
        self.vocabulary = tokenizer.get_vocab_size(with_added_tokens=True)
        """How many token ids there are."""

    @property
    def segments(self) -> int:
        """How many segments the tokenizer tells apart."""
        return self._sides.segments

    @property
    def highest_marker(self) -> int:
        """The greatest id of those that it puts around texts."""
        return self._sides.highest_marker

    def prepare(self, items: Sequence[Item]) -> list[Read]:
        plans = [self._plan(item) for item in items]
        contents = self._excerpts.read({ask for plan in plans if isinstance(plan, list) for ask in plan})
        return [
            self._prepare(item, [contents[ask] for ask in plan]) if isinstance(plan, list) else plan
            for item, plan in zip(items, plans, strict=True)
        ]

    def _plan(self, item: Item) -> list[Ask] | Output | ShoalError:
        """The texts of `item` to tokenise, or its tokens where they are all it asks for."""
        if "tokens" in item.kinds:
            return self._tokens(item)
        refusal = self._refusal(item)
        if refusal is not None:
            return refusal
        if item.ids is not None:
            return []
        room = self._room(item)
        texts = [item.prompt + item.text] + ([] if item.pair is None else [item.pair])
        if self._facts.lowercase:
            texts = [text.lower() for text in texts]
        asks = [Ask(text, room, item.truncate) for text in texts]
        # An error names the length that was seen, and of two long texts the longer is cut first.
        exact = item.truncate == "error" or (len(asks) == 2 and all(ask.is_long for ask in asks))
        return [ask._replace(exact=True) for ask in asks] if exact else asks

    def _tokens(self, item: Item) -> Output:
        """However long the text is, and with the markers that the tokenizer itself puts around it."""
        text = item.prompt + item.text
        read = text.lower() if self._facts.lowercase else text
        found = self._tokenizer.encode(read)
        origin: Sequence[int] = range(len(text) + 1)
        if len(read) != len(text):  # a few letters are two in lower case
            origin = [*(at for at, letter in enumerate(text) for _ in letter.lower()), len(text)]
        places = [
            (-1, -1) if marker else (origin[start], origin[max(start, stop - 1)] + (stop > start))
            for marker, (start, stop) in zip(found.special_tokens_mask, found.offsets, strict=True)
        ]
        texts = [
            name if start < 0 else text[start:stop]
            for name, (start, stop) in zip(found.tokens, places, strict=True)
        ]
        tensors = {
            "tokens.ids": Tensor.of(np.array(found.ids, np.int32)),
            "tokens.places": Tensor.of(np.array(places, np.int32).reshape(-1, 2)),
        }
        return Output(tensors, len(found.ids), texts=texts)

    def _refusal(self, item: Item) -> ShoalError | None:
        wrong = self._refusal_of_pair(item) if self._facts.reads_pairs else self._refusal_of_kinds(item)
        if wrong is not None:
            return wrong
        if self._room(item) < 1:
            return InvalidInput(f"a limit of {self._limit(item)} tokens leaves no room beside the markers")
        if item.ids is not None:
            return self._refusal_of_ids(item.ids, item.prompt)
        if not item.text.strip():
            return EmptyInput("the text is empty" if item.pair is None else "the query is empty")
        if item.pair is not None and not item.pair.strip():
            return EmptyInput("the document is empty")
        return None

    def _refusal_of_pair(self, item: Item) -> ShoalError | None:
        if item.ids is not None:
            return InvalidInput("this model reads text, not token ids")
        if item.pair is None and not self._facts.labels:
            return InvalidInput("this model scores a query and a document, both given as text")
        return None

    def _refusal_of_kinds(self, item: Item) -> ShoalError | None:
        if item.pair is not None:
            return InvalidInput("this model reads one text at a time, not a pair")
        lacking = set(item.kinds) - set(self._facts.kinds)
        if not lacking:
            return None
        gives = " and ".join(self._facts.kinds)
        return InvalidInput(f"this model gives {gives} vectors, not {' or '.join(sorted(lacking))}")

    def _refusal_of_ids(self, ids: list[int], prompt: str) -> ShoalError | None:
        if not ids:
            return EmptyInput("the list of token ids is empty")
        if prompt:
            return InvalidInput("a prompt cannot be put before token ids; send ids that include it")
        if min(ids) < 0 or max(ids) >= self.vocabulary:
            return InvalidInput(f"token ids have to lie within 0…{self.vocabulary - 1}, the model's vocabulary")
        return None

    def _limit(self, item: Item) -> int:
        limit = self._sides.of(item).max_tokens
        return min(item.max_tokens or limit, limit)

    def _room(self, item: Item) -> int:
        return self._limit(item) - self._sides.of(item).markers.count

    def _prepare(self, item: Item, contents: list[Content | ShoalError]) -> Prepared | ShoalError:
        side = self._sides.of(item)
        texts: list[list[int]] = []
        unread = False
        for content in contents:
            if isinstance(content, ShoalError):
                return content
            texts.append(content.ids)
            unread = unread or content.unread
        if item.ids is not None:
            texts = [item.ids]
        lengths = [len(text) for text in texts]
        kept = share_room(lengths, self._room(item))
        truncated = unread or kept != lengths
        if truncated and item.truncate == "error":
            return self._too_long(item, sum(lengths) + side.markers.count, unread)
        if truncated:
            texts = [_cut(text, n, item) for text, n in zip(texts, kept, strict=True)]
        return side.prepared(item, texts, truncated)

    def _too_long(self, item: Item, seen: int, unread: bool) -> ShoalError:
        what = "the input, which was not read to its end," if unread else "the input"
        return over_limit(
            InputTooLong, what, seen=seen, limit=self._limit(item), setting="truncate=end or start", unit="tokens"
        )


def share_room(lengths: Sequence[int], room: int) -> list[int]:
    """How many tokens of each text are kept: of two, the longer is cut until they are equal, then both.

    The same numbers as `longest_first` of transformers gives.
    """
    if sum(lengths) <= room or len(lengths) == 1:
        return [min(length, room) for length in lengths]
    first, second = lengths
    shorter = min(first, second, room // 2)
    return [shorter, room - shorter] if first <= second else [room - shorter, shorter]


def _cut(text: list[int], length: int, item: Item) -> list[int]:
    return text[len(text) - length :] if item.truncate == "start" else text[:length]


def load_tokenizer(folder: Path) -> Tokenizer:
    """`tokenizer.json` without the truncation and padding that it may bring. Raises ModelLoadFailed."""
    path = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:  # the library raises bare Exceptions, and panics, which are none
        raise ModelLoadFailed(f"cannot read {path.name}: {e}") from e
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
