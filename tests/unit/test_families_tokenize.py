"""How texts, pairs and ids become input ids, and what is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from shoal.families import Prepared
from shoal.families.markers import learn_markers
from shoal.families.tokenize import TextReader, load_tokenizer, share_room
from shoal.protocol.errors import EmptyInput, InputTooLong, InvalidInput, ModelLoadFailed
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item
from shoal.testing.checkpoints import tiny_tokenizer

LIMIT = 16
ENCODER = Facts(tasks=("encode",), family="bert", files="safetensors", max_tokens=LIMIT, dims=8, pooling="mean")
SCORER = Facts(tasks=("score",), family="bert", files="safetensors", max_tokens=LIMIT)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    return load_tokenizer(folder)


@pytest.fixture(scope="module")
def encoder(tokenizer) -> TextReader:
    return TextReader(tokenizer, ENCODER)


@pytest.fixture(scope="module")
def scorer(tokenizer) -> TextReader:
    return TextReader(tokenizer, SCORER)


def pieces(tokenizer: Tokenizer, prepared: Prepared) -> str:
    return " ".join(tokenizer.id_to_token(token) for token in prepared.ids)


def test_a_text_gets_its_markers_and_no_padding(tokenizer, encoder):
    (prepared,) = encoder.prepare([Item("the fish swim")])
    assert pieces(tokenizer, prepared) == "[CLS] the fish swim [SEP]"
    assert prepared.segments == [0] * 5
    assert not prepared.truncated


def test_tokens_alone_are_read_whole_with_their_places_in_the_clients_own_text(tokenizer, encoder, scorer):
    for reader in (encoder, scorer):
        long, empty, also = reader.prepare(
            [Item("fish " * 40, kinds=("tokens",)), Item("", kinds=("tokens",)), Item("swim", kinds=("tokens",))]
        )
        assert long.tokens == 42
        assert long.tensors["tokens.places"].numpy()[[0, 1, 40, 41]].tolist() == [
            [-1, -1], [0, 4], [195, 199], [-1, -1],
        ]  # fmt: skip
        assert empty.texts == ["[CLS]", "[SEP]"]
        assert also.texts == ["[CLS]", "swim", "[SEP]"]
        assert also.tensors["tokens.ids"].numpy().tolist() == tokenizer.encode("swim").ids


def test_a_letter_that_is_two_in_lower_case_moves_no_place(tokenizer):
    lowering = TextReader(tokenizer, msgspec.structs.replace(ENCODER, lowercase=True))
    (read,) = lowering.prepare([Item("İİ FISH swim", kinds=("tokens",))])
    assert read.texts[-3:] == ["FISH", "swim", "[SEP]"]
    assert read.tensors["tokens.places"].numpy()[-3:-1].tolist() == [[3, 7], [8, 12]]


def test_the_files_own_truncation_at_8_is_switched_off(encoder):
    (prepared,) = encoder.prepare([Item("the " * 10)])
    assert prepared.tokens == 12


@pytest.mark.parametrize(("words", "tokens", "truncated"), [(13, 15, False), (14, 16, False), (15, 16, True)])
def test_the_limit_counts_markers_and_is_exact(encoder, words, tokens, truncated):
    by_text, by_ids = encoder.prepare([Item("fish " * words), Item(ids=[7] * words)])
    assert (by_text.tokens, by_text.truncated) == (tokens, truncated)
    assert (by_ids.tokens, by_ids.truncated) == (tokens, truncated)


def test_end_keeps_the_start_and_start_keeps_the_end(tokenizer, encoder):
    text = "paris " + "the " * 20 + "fish"
    end, start = encoder.prepare([Item(text, truncate="end"), Item(text, truncate="start")])
    assert pieces(tokenizer, end) == "[CLS] paris " + "the " * 13 + "[SEP]"
    assert pieces(tokenizer, start) == "[CLS] " + "the " * 13 + "fish [SEP]"
    assert end.truncated
    assert start.truncated


def test_an_error_instead_of_truncation_names_limit_length_and_setting(encoder):
    (error,) = encoder.prepare([Item("the " * 20, truncate="error")])
    assert isinstance(error, InputTooLong)
    assert error.detail["limit"] == LIMIT
    assert error.detail["seen"] == 22
    assert "truncate" in error.message


def test_an_item_may_lower_the_limit_but_not_raise_it(encoder):
    lower, higher = encoder.prepare([Item("the " * 99, max_tokens=5), Item("the " * 99, max_tokens=50)])
    assert lower.tokens == 5
    assert higher.tokens == LIMIT


def test_a_limit_that_leaves_no_room_beside_the_markers_is_refused(encoder, scorer):
    (single,) = encoder.prepare([Item("fish", max_tokens=2)])
    (pair,) = scorer.prepare([Item("fish", pair="swim", max_tokens=3)])
    assert isinstance(single, InvalidInput)
    assert isinstance(pair, InvalidInput)


@pytest.mark.parametrize("text", ["", " ", "\n\t  \u3000"])
def test_an_empty_text_gets_a_typed_error_and_its_neighbours_succeed(encoder, text):
    before, empty, after = encoder.prepare([Item("fish"), Item(text, prompt="the "), Item("swim")])
    assert isinstance(empty, EmptyInput)
    assert isinstance(before, Prepared)
    assert isinstance(after, Prepared)


@pytest.mark.parametrize(("query", "document"), [("", "fish"), ("fish", "  ")])
def test_an_empty_half_of_a_pair_is_an_empty_input(scorer, query, document):
    (error,) = scorer.prepare([Item(query, pair=document)])
    assert isinstance(error, EmptyInput)


def test_a_text_that_the_tokenizer_drops_wholly_still_has_its_markers(tokenizer, encoder):
    (prepared,) = encoder.prepare([Item("\x00\u200b")])
    assert pieces(tokenizer, prepared) == "[CLS] [SEP]"


def test_a_prompt_stands_before_the_text_and_counts(tokenizer, encoder):
    whole, cut = encoder.prepare([Item("fish", prompt="the small "), Item("fish " * 20, prompt="the small ")])
    assert pieces(tokenizer, whole) == "[CLS] the small fish [SEP]"
    assert pieces(tokenizer, cut).startswith("[CLS] the small fish")
    assert cut.tokens == LIMIT


def test_token_ids_get_the_markers_that_text_gets(encoder):
    (text,) = encoder.prepare([Item("the fish swim")])
    (ids,) = encoder.prepare([Item(ids=text.ids[1:-1])])
    assert (ids.ids, ids.segments) == (text.ids, text.segments)


@pytest.mark.parametrize("ids", [[-1], [3, 10_000]])
def test_token_ids_outside_the_vocabulary_are_refused_by_name(encoder, ids):
    (error,) = encoder.prepare([Item(ids=ids)])
    assert isinstance(error, InvalidInput)
    assert str(encoder.vocabulary - 1) in error.message


def test_token_ids_are_no_place_for_a_prompt_and_not_empty(encoder):
    prompted, empty = encoder.prepare([Item(ids=[7], prompt="the "), Item(ids=[])])
    assert isinstance(prompted, InvalidInput)
    assert isinstance(empty, EmptyInput)


def test_pairs_belong_to_models_that_score_and_single_texts_to_those_that_encode(encoder, scorer):
    (pair,) = encoder.prepare([Item("fish", pair="swim")])
    single, ids = scorer.prepare([Item("fish"), Item(ids=[7])])
    assert [type(error) for error in (pair, single, ids)] == [InvalidInput] * 3


def test_a_pair_has_both_texts_marked_and_the_second_in_its_own_segment(tokenizer, scorer):
    (prepared,) = scorer.prepare([Item("fish", pair="small fish", prompt="the ")])
    assert pieces(tokenizer, prepared) == "[CLS] the fish [SEP] small fish [SEP]"
    assert prepared.segments == [0, 0, 0, 0, 1, 1, 1]


def test_of_a_pair_only_the_longer_is_cut(tokenizer, scorer):
    document, query = scorer.prepare([Item("the fish", pair="swim " * 30), Item("swim " * 30, pair="the fish")])
    assert pieces(tokenizer, document) == "[CLS] the fish [SEP] " + "swim " * 11 + "[SEP]"
    assert pieces(tokenizer, query) == "[CLS] " + "swim " * 11 + "[SEP] the fish [SEP]"
    assert document.truncated
    assert query.truncated


@given(first=st.integers(1, 60), second=st.integers(1, 60), limit=st.integers(5, 60))
def test_a_pair_is_cut_to_the_lengths_that_the_reference_cuts_it_to(first, second, limit):
    reference = tiny_tokenizer()
    reference.no_padding()
    reference.enable_truncation(limit, strategy="longest_first")
    encoding = reference.encode("fish " * first, "swim " * second)
    kept = [encoding.sequence_ids.count(0), encoding.sequence_ids.count(1)]
    assert share_room([first, second], limit - 3) == kept


@given(st.text(max_size=40).filter(str.strip), st.text(max_size=40).filter(str.strip))
def test_markers_are_put_where_the_tokenizer_would_put_them(first, second):
    tokenizer = tiny_tokenizer()
    tokenizer.no_truncation()
    tokenizer.no_padding()
    for texts in ([first], [first, second]):
        expected = tokenizer.encode(*texts)
        bare = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        assert learn_markers(tokenizer, len(texts)).join(bare) == (expected.ids, expected.type_ids)


def test_a_model_that_wants_lower_case_gets_it(tokenizer):
    cased = Tokenizer.from_str(tokenizer.to_str().replace('"lowercase":true', '"lowercase":false'))
    facts = Facts(**{**{f: getattr(ENCODER, f) for f in ENCODER.__struct_fields__}, "lowercase": True})
    (upper,) = TextReader(cased, ENCODER).prepare([Item("FISH")])
    (lowered,) = TextReader(cased, facts).prepare([Item("FISH")])
    assert pieces(cased, upper) == "[CLS] [UNK] [SEP]"
    assert pieces(cased, lowered) == "[CLS] fish [SEP]"


@pytest.mark.parametrize("content", [None, "{", '{"model": 1}'])
def test_a_tokenizer_file_that_is_missing_or_broken_fails_the_load(tmp_path, content):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelLoadFailed, match="tokenizer"):
        load_tokenizer(tmp_path)
