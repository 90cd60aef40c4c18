"""Tokens of words that were seen before. BERT's tokenizers split plain text at blanks and signs, and make tokens
of each word by itself: to look a word up takes a tenth of what the tokenizer takes for it.

Only what is certain to be read so is read here; all else is the tokenizer's.
"""

import re

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

MOST_WORDS = 16_384
"""About 4 MB. Once there are as many, all are learned anew."""
_LONGEST = 32
"""Longer ones are no words, and seldom come again."""
_WORD = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9 ]")


class KnownWords:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, list[int]] = {}
        added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        self._openers = {content[:1] for content in added}
        """An added token ("[MASK]") is found before words are."""
        self._can = (
            isinstance(tokenizer.normalizer, BertNormalizer)
            and isinstance(tokenizer.pre_tokenizer, BertPreTokenizer)
            and isinstance(tokenizer.model, WordPiece)
            and not any(opener.isalnum() or opener in ("", " ") for opener in self._openers)
        )
        self._lowers = self._can and bool(tokenizer.normalizer.lowercase)

    def read(self, text: str) -> list[int] | None:
        """Its token ids without markers; None where the tokenizer has to be asked."""
        is_plain = self._can and text.isascii() and text.isprintable()
        if not is_plain or any(opener in text for opener in self._openers):
            return None
        ids: list[int] = []
        for word in _WORD.findall(text.lower() if self._lowers else text):
            known = self._known.get(word)
            ids += self._learn(word) if known is None else known
        return ids

    def _learn(self, word: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(word, add_special_tokens=False).ids
        if len(word) <= _LONGEST:
            if len(self._known) >= MOST_WORDS:
                self._known.clear()
            self._known[word] = ids
        return ids
