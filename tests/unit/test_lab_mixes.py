"""What is asked under load: lengths that are as said, the same for a seed, and bodies that each API takes."""

import json
import random
import statistics

import msgspec
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from names import MINILM
from shoal.catalog.store import Store
from shoal.lab.mixes import LONGEST, Chat, Pairs, Raw, Texts, lognormal, mix, read_lines, short, texts_of
from shoal.lab.ramp import parse_loads
from shoal.lab.tokens import by_tokenizer, by_words, counter_for
from shoal.lab.wires import Wire, ready
from shoal.protocol.errors import InvalidInput

COUNT = by_words(1.0)


def lines(tmp_path, *entries):
    path = tmp_path / "asked.jsonl"
    path.write_text("\n".join(entry if isinstance(entry, str) else json.dumps(entry) for entry in entries))
    return path


def test_short_texts_have_8_to_16_tokens():
    lengths = {COUNT.text(text) for text in texts_of(short, 2000, seed=3)}
    assert lengths == set(range(8, 17))


def test_lognormal_texts_have_a_median_of_30_tokens_and_at_most_250():
    lengths = [COUNT.text(text) for text in texts_of(lognormal, 5000, seed=3)]
    assert statistics.median(lengths) == pytest.approx(30, abs=2)
    assert max(lengths) == LONGEST
    assert min(lengths) >= 3
    logs = statistics.quantiles(lengths, n=100)
    assert logs[83] / logs[49] == pytest.approx(2.226, rel=0.1)  # e^0.8, one sigma above the median


def test_a_batch_holds_32_short_texts():
    asked = mix("batch").asked
    assert {len(entry.texts) for entry in asked} == {32}
    assert COUNT.of(asked[0])[0] == 32
    assert 32 * 8 <= COUNT.of(asked[0])[1] <= 32 * 16


def test_a_seed_gives_the_same_mix_and_another_seed_another():
    assert mix("lognormal", 5) == mix("lognormal", 5)
    assert mix("lognormal", 5).asked != mix("lognormal", 6).asked


def test_a_mix_of_pairs_has_a_query_and_as_many_documents_as_are_asked_for():
    asked = mix("lognormal", shape="pairs", per_request=100).asked
    assert {len(entry.documents) for entry in asked} == {100}
    assert {8 <= COUNT.text(entry.query) <= 16 for entry in asked} == {True}


def test_an_unknown_mix_is_refused_with_those_there_are():
    with pytest.raises(InvalidInput, match="short, lognormal, batch"):
        mix("long")


@pytest.mark.models
def test_made_up_words_are_one_token_each_for_a_bert_model(home):
    counter = counter_for(MINILM, 1.0, Store(home))
    assert "own tokenizer" in counter.source
    for text in texts_of(short, 200, seed=1):
        assert counter.text(text) == COUNT.text(text)
    assert counter.text("word " * 1000) == 256
    assert counter.pair("one two", "three four") == COUNT.pair("one two", "three four") == 7


def test_without_a_tokenizer_tokens_are_words_times_a_ratio_and_that_is_said(virtual_home):
    counter = counter_for("nobody/knows", 1.5, Store(virtual_home))
    assert counter.text("four words are here") == 4 * 1.5 + 2
    assert "1.5 a word" in counter.source


def test_padding_and_cutting_that_a_tokenizer_file_asks_for_do_not_count(tmp_path):
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_padding(length=64)
    tokenizer.enable_truncation(4)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert by_tokenizer(tmp_path / "tokenizer.json").text("a b c d e f") == 6
    assert by_tokenizer(tmp_path / "tokenizer.json", limit=5).text("a b c d e f") == 5


def test_a_file_of_lines_holds_texts_pairs_chats_or_whole_bodies(tmp_path):
    message = {"role": "user", "content": "hi"}
    assert read_lines(lines(tmp_path, {"text": "a"}, {"text": ["b", "c"]})).asked == (
        Texts(("a",)),
        Texts(("b", "c")),
    )
    assert read_lines(lines(tmp_path, {"query": "q", "documents": ["d"]}, "")).asked == (Pairs("q", ("d",)),)
    assert read_lines(lines(tmp_path, {"messages": [message]})).asked == (Chat((message,)),)
    body = {"model": "m", "input": ["a", "b"], "dimensions": 8}
    given = read_lines(lines(tmp_path, body))
    assert given.asked == (Raw(json.dumps(body).encode(), 1),)
    assert by_words(1.0).of(given.asked[0]) == (2, 6)
    assert given.seed is None


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ([], "holds no requests"),
        (["{"], "line 1"),
        ([{"text": "a"}, "[]"], "line 2"),
        ([{"text": 5}], "line 1"),
        ([{"text": "a"}, {"query": "q", "documents": []}], "line 2 is a pair, .* one kind"),
        ([{"text": "a"}, "", {"txet": "b", "id": 1}], "line 3 is a whole body with the keys txet, id, .* a text"),
    ],
)
def test_a_file_that_cannot_be_asked_is_refused_with_the_line(tmp_path, entries, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        read_lines(lines(tmp_path, *entries))


def test_each_api_gets_the_body_it_takes():
    texts, pairs = mix("batch"), mix("batch", shape="pairs")
    openai = ready(Wire("openai", "m"), texts, COUNT)[0]
    assert (openai.path, openai.items) == ("/v1/embeddings", 32)
    assert json.loads(openai.body) == {
        "model": "m",
        "input": list(texts.asked[0].texts),
        "encoding_format": "base64",
    }
    rerank = ready(Wire("rerank", "m", prefix="/api"), pairs, COUNT)[0]
    assert rerank.path == "/api/v1/rerank"
    assert json.loads(rerank.body)["documents"] == list(pairs.asked[0].documents)
    encode = ready(Wire("native", "a/b:int8"), texts, COUNT)[0]
    assert (encode.path, encode.content_type) == ("/v1/encode/a/b:int8", "application/msgpack")
    assert msgspec.msgpack.decode(encode.body) == {"items": list(texts.asked[0].texts)}
    score = ready(Wire("native", "m"), pairs, COUNT)[0]
    assert (score.path, score.items) == ("/v1/score/m", 32)
    chat = ready(Wire("chat", "m", max_tokens=9), mix("short", shape="chat"), COUNT)[0]
    body = json.loads(chat.body)
    assert (body["stream"], body["stream_options"], body["max_tokens"]) == (True, {"include_usage": True}, 9)


@pytest.mark.parametrize(
    ("api", "good", "bad"),
    [
        ("openai", {"model": "m", "input": "a"}, {"txet": "a"}),
        ("rerank", {"query": "q", "documents": ["d"], "top_n": 1}, {"query": "q", "docs": ["d"]}),
        ("chat", {"messages": [], "temperature": 0}, {"prompt": "a"}),
        ("native", {"items": ["a"], "query": "q"}, {"texts": ["a"]}),
    ],
)
def test_a_line_whose_keys_no_body_of_the_api_has_is_named(tmp_path, api, good, bad):
    assert len(ready(Wire(api, "m"), read_lines(lines(tmp_path, good, good)), COUNT)) == 2
    with pytest.raises(InvalidInput, match=f"line 3 has the keys {', '.join(bad)}; .*--api {api}"):
        ready(Wire(api, "m"), read_lines(lines(tmp_path, good, "", bad)), COUNT)


def test_what_an_api_has_no_place_for_is_refused_with_one_that_has():
    with pytest.raises(InvalidInput, match="--api rerank or native"):
        ready(Wire("openai", "m"), mix("short", shape="pairs"), COUNT)


def test_loads_are_a_list_or_a_range_that_grows():
    assert list(parse_loads("32,1,8", "connections")) == [1, 8, 32]
    assert list(parse_loads("1..20", "connections")) == [1, 2, 4, 8, 16]
    assert list(parse_loads("100..300", "rate")) == [100, 150, 225]
    assert list(parse_loads("1..", "connections"))[-1] == 4096
    assert parse_loads("1..", "connections").is_ramp
    assert not parse_loads("0.5", "rate").is_ramp


@pytest.mark.parametrize("text", ["", "0", "-1", "many", "1.5", "8..2", "1..2..3", "5000", "nan"])
def test_loads_that_are_none_are_refused(text):
    with pytest.raises(InvalidInput, match="write 1,8,32"):
        parse_loads(text, "connections")


def test_lengths_come_from_the_generator_alone():
    assert [short(random.Random(1)) for _ in range(3)] == [short(random.Random(1))] * 3
