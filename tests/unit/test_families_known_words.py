"""Words that were seen before have the tokens that the tokenizer gives them, and no other text is read so."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, Whitespace

from shoal.families import known_words
from shoal.families.known_words import KnownWords

WORDS = ["a", "fish", "##es", "##s", "school", "of", "'", "don", "t", "-", "_", "^", "9", "##9", "Fish", "[", "]"]
PIECES = ["fish", "Fishes", "schools", "of", " ", "  ", "don't", "9", "99", "_", "^", "x" * 40, "a" * 101]
ODD = ["[MASK]", "é", "鱼", "\t", "\n", "\x00", "\x7f", "[UNK]fish"]


def tokenizer(*, lowercase: bool = True, added: str = "") -> Tokenizer:
    words = {word: number for number, word in enumerate(["[UNK]", "[MASK]", *WORDS])}
    made = Tokenizer(WordPiece(words, unk_token="[UNK]"))
    made.normalizer = BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = BertPreTokenizer()
    made.add_special_tokens(["[UNK]", "[MASK]"])
    if added:
        made.add_tokens([added])
    return made


@pytest.mark.parametrize("lowercase", [True, False])
@settings(max_examples=300)
@given(pieces=st.lists(st.sampled_from(PIECES + ODD), max_size=20))
def test_a_text_has_the_tokens_that_the_tokenizer_gives_it(lowercase, pieces):
    made = tokenizer(lowercase=lowercase)
    words, text = KnownWords(made), "".join(pieces)
    for _ in range(2):  # the second time all of them are known
        ids = words.read(text)
        assert ids is None or ids == made.encode(text, add_special_tokens=False).ids


@settings(max_examples=300)
@given(text=st.text(st.characters(min_codepoint=0, max_codepoint=127), max_size=40))
def test_any_ascii_text_has_the_tokens_that_the_tokenizer_gives_it(text):
    made = tokenizer()
    ids = KnownWords(made).read(text)
    assert ids is None or ids == made.encode(text, add_special_tokens=False).ids


def test_plain_text_is_read_here():
    assert KnownWords(tokenizer()).read("Fishes don't school.") is not None


@pytest.mark.parametrize("text", ODD)
def test_what_is_not_plain_is_left_to_the_tokenizer(text):
    assert KnownWords(tokenizer()).read(f"fish {text}") is None


def test_other_tokenizers_and_added_words_are_left_alone():
    other = tokenizer()
    other.pre_tokenizer = Whitespace()
    assert KnownWords(other).read("fish") is None
    assert KnownWords(tokenizer(added="school")).read("fish") is None


def test_no_more_words_are_kept_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(known_words, "MOST_WORDS", 3)
    made = tokenizer()
    words = KnownWords(made)
    for text in ("fish of a school", "a fish 9", "schools of fishes"):
        assert words.read(text) == made.encode(text, add_special_tokens=False).ids
        assert len(words._known) <= 3
