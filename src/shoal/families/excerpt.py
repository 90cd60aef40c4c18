"""Tokenises texts, the over-long ones only in part: as much as yields the wanted tokens, in bounded memory.

What is cut away cannot change what is kept: tokens near the cut are dropped together with their whole word, and
if too few are left a longer part is read.
"""

from collections.abc import Collection
from typing import NamedTuple

from tokenizers import Encoding, Tokenizer

from shoal.families.known_words import KnownWords
from shoal.protocol.errors import InputTooLong, ShoalError
from shoal.protocol.items import Truncate

_EXACT_CHARACTERS = 100_000
"""An exact count is exact up to here; beyond it is a lower bound."""
_MOST_CHARACTERS = 1_000_000
"""More than this is not read for one text's tokens: it takes about 130 MB and 0.7 s."""


class Ask(NamedTuple):
    """A text of which up to `room` tokens can be kept; `exact` asks for their number as well."""

    text: str
    room: int
    truncate: Truncate
    exact: bool = False

    @property
    def window(self) -> int:
        """Characters to read at first: words are seldom longer than eight a token."""
        return max(8 * self.room + 256, _EXACT_CHARACTERS if self.exact else 0)

    @property
    def is_long(self) -> bool:
        return len(self.text) > self.window


class Content(NamedTuple):
    """Token ids without markers. `unread` says that there are more than these."""

    ids: list[int]
    unread: bool = False


class Excerpts:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._words = KnownWords(tokenizer)
        added = tokenizer.get_added_tokens_decoder().values()
        # A cut through an added token ("[MA") makes it words, so tokens this near to a cut are not trusted.
        self._margin = 64 + max((len(token.content) for token in added), default=0)

    def read(self, asks: Collection[Ask]) -> dict[Ask, Content | ShoalError]:
        """More than `room` tokens, or all there are."""
        contents: dict[Ask, Content | ShoalError] = {}
        unknown: list[Ask] = []
        for ask in asks:
            if ask.is_long:
                contents[ask] = self._read_long(ask)
            elif (ids := self._words.read(ask.text)) is not None:
                contents[ask] = Content(ids)
            else:
                unknown.append(ask)
        encodings = self._tokenizer.encode_batch_fast([ask.text for ask in unknown], add_special_tokens=False)
        for ask, encoding in zip(unknown, encodings, strict=True):
            contents[ask] = Content(encoding.ids)
        return contents

    def _read_long(self, ask: Ask) -> Content | ShoalError:
        window = ask.window
        while min(window, len(ask.text)) <= _MOST_CHARACTERS:
            if window >= len(ask.text):
                return Content(self._encode(ask.text).ids)
            read = self._sure_end if ask.truncate == "start" else self._sure_start
            ids = read(ask.text, window)
            if len(ids) > ask.room:
                return Content(ids, unread=True)
            window *= 4
        return InputTooLong(
            f"of a text of {len(ask.text)} characters, {_MOST_CHARACTERS} give no {ask.room} tokens, "
            "and no more are read; shorten it",
            limit=_MOST_CHARACTERS,
            seen=len(ask.text),
        )

    def _sure_start(self, text: str, window: int) -> list[int]:
        """The tokens at the start of `text` that a cut after `window` characters cannot have changed."""
        encoding = self._encode(text[:window])
        offsets, words = encoding.offsets, encoding.word_ids
        stop = len(offsets)
        while stop and (offsets[stop - 1][1] > window - self._margin or _is_same_word(words, stop)):
            stop -= 1
        return encoding.ids[:stop]

    def _sure_end(self, text: str, window: int) -> list[int]:
        """The tokens at the end of `text` that a cut before its last `window` characters cannot have changed."""
        encoding = self._encode(text[-window:])
        offsets, words = encoding.offsets, encoding.word_ids
        start = 0
        while start < len(offsets) and (offsets[start][0] < self._margin or _is_same_word(words, start)):
            start += 1
        return encoding.ids[start:]

    def _encode(self, text: str) -> Encoding:
        return self._tokenizer.encode(text, add_special_tokens=False)


def _is_same_word(words: list[int | None], at: int) -> bool:
    """Whether the tokens before and after place `at` belong to one word."""
    return 0 < at < len(words) and words[at - 1] == words[at]
