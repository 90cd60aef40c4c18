"""An over-long text is read in part, and keeps the tokens that the whole would have given."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Encoding, Tokenizer

from shoal.families.excerpt import Ask, Content, Excerpts
from shoal.families.tokenize import TextReader
from shoal.protocol.errors import InputTooLong
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item
from shoal.testing.checkpoints import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
TOKENIZER.no_truncation()
TOKENIZER.no_padding()

PIECES = [
    "fish", " swim", "a" * 150, "xyz", "[MASK]", "[SEP", "鱼群", "é", "e\u0301", "  \n ", "don't", ".",
    " paris" * 40, f" {'x' * 98}ß ",
]  # fmt: skip
long_texts = st.lists(st.sampled_from(PIECES), min_size=60, max_size=400).map("".join)


class Recorded:
    """The tokenizer itself, but for a note of how much it was given at once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.characters: list[int] = []

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)

    def encode(self, text: str, *rest, **options) -> Encoding:
        self.characters.append(len(text))
        return self._tokenizer.encode(text, *rest, **options)


def read(ask: Ask) -> Content | Exception:
    return Excerpts(TOKENIZER).read({ask})[ask]


@settings(max_examples=300)
@given(text=long_texts, room=st.integers(1, 40))
def test_the_kept_tokens_are_those_of_the_whole_text(text, room):
    whole = TOKENIZER.encode(text, add_special_tokens=False).ids
    assert read(Ask(text, room, "end")).ids[:room] == whole[:room]
    assert read(Ask(text, room, "start")).ids[-room:] == whole[-room:]


@settings(max_examples=300)
@given(text=long_texts, room=st.integers(1, 40))
def test_a_part_is_called_so_only_if_more_was_read_than_there_is_room_for(text, room):
    for truncate in ("end", "start"):
        content = read(Ask(text, room, truncate))
        assert not content.unread or len(content.ids) > room


@pytest.mark.parametrize("truncate", ["end", "start"])
def test_of_a_text_of_100_000_words_only_a_small_part_is_tokenised(truncate):
    tokenizer = Recorded(TOKENIZER)
    ask = Ask("fish " * 100_000, 62, truncate)
    content = Excerpts(tokenizer).read({ask})[ask]
    assert content.unread
    assert sum(tokenizer.characters) < 2_000


def test_a_pair_of_100_000_words_each_is_read_within_bounds():
    tokenizer = Recorded(TOKENIZER)
    facts = Facts(tasks=("score",), family="bert", files="safetensors", max_tokens=64)
    (prepared,) = TextReader(tokenizer, facts).prepare([Item("fish " * 100_000, pair="swim " * 100_000)])
    assert (prepared.tokens, prepared.truncated) == (64, True)
    assert max(tokenizer.characters) <= 100_000


def test_of_two_long_texts_the_longer_keeps_the_odd_token():
    facts = Facts(tasks=("score",), family="bert", files="safetensors", max_tokens=64)
    reader = TextReader(TOKENIZER, facts)
    longer, shorter = reader.prepare(
        [Item("fish " * 3000, pair="swim " * 2000), Item("fish " * 2000, pair="swim " * 3000)]
    )
    assert longer.segments.count(0) == 33  # 31 tokens of the query and its two markers
    assert shorter.segments.count(0) == 32


def test_an_error_counts_a_text_of_some_thousand_tokens_exactly():
    (error,) = TextReader(
        TOKENIZER, Facts(tasks=("encode",), family="bert", files="safetensors", max_tokens=64)
    ).prepare([Item("fish " * 5_000, truncate="error")])
    assert isinstance(error, InputTooLong)
    assert error.detail["seen"] == 5_002


def test_an_error_about_an_endless_text_says_that_it_was_not_read_to_its_end():
    (error,) = TextReader(
        TOKENIZER, Facts(tasks=("encode",), family="bert", files="safetensors", max_tokens=64)
    ).prepare([Item("fish " * 200_000, truncate="error")])
    assert isinstance(error, InputTooLong)
    assert "not read to its end" in error.message
    assert 10_000 < error.detail["seen"] < 30_000


@pytest.mark.parametrize("truncate", ["end", "start", "error"])
@pytest.mark.parametrize("text", ["a" * 5_000_000, " " * 4_999_999 + "a"])
def test_megabytes_that_hold_next_to_no_tokens_are_refused_after_a_bounded_part(text, truncate):
    tokenizer = Recorded(TOKENIZER)
    ask = Ask(text, 62, truncate, exact=truncate == "error")
    error = Excerpts(tokenizer).read({ask})[ask]
    if isinstance(error, Content):
        pytest.fail(f"read {error}")
    assert isinstance(error, InputTooLong)
    assert error.detail["seen"] == 5_000_000
    assert max(tokenizer.characters) <= 1_000_000


def test_texts_that_fit_are_read_whole_whatever_they_hold():
    asks = {Ask("fish " * n, 62, "end") for n in (1, 10, 100, 140)}
    contents = Excerpts(TOKENIZER).read(asks)
    assert {len(contents[ask].ids) for ask in asks} == {1, 10, 100, 140}
    assert not any(content.unread for content in contents.values())
