"""HTTP answers read out of bytes that come in any pieces: the whole, one by one, or anything between."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.lab.reading import BrokenAnswer, Reader

BODIES = st.binary(max_size=300)
CUTS = st.lists(st.integers(1, 40), min_size=1, max_size=60)
TOKENS = st.lists(st.text(min_size=1, max_size=5), max_size=6)
NAMES = st.sampled_from(["Content-Length", "content-length", "CONTENT-LENGTH"])


def pieces(data, cuts):
    """`data` cut into pieces of these sizes, again and again."""
    at, turn = 0, 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        yield data[at : at + size]
        at, turn = at + size, turn + 1


def read(data, cuts, *, reader=None):
    """A reader after exactly one answer, which was whole with the last byte and not before."""
    reader = reader or Reader()
    whole = [reader.feed(piece) for piece in pieces(data, cuts)]
    assert whole == [False] * (len(whole) - 1) + [True]
    return reader


def chunked(body, cuts, content_type=b"text/plain"):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: %b\r\n\r\n" % content_type
    chunks = b"".join(b"%x;a=b\r\n%b\r\n" % (len(piece), piece) for piece in pieces(body, cuts))
    return head + chunks + b"0\r\nx-late: 1\r\n\r\n"


@given(BODIES, CUTS, st.sampled_from([200, 201, 404, 503]), NAMES)
def test_an_answer_with_a_length_is_whole_with_its_last_byte(body, cuts, status, name):
    data = b"HTTP/1.1 %d Why\r\nDate: x\r\n%b: %d\r\n\r\n%b" % (status, name.encode(), len(body), body)
    reader = read(data, cuts)
    assert reader.status == status
    assert reader.refusal == (b"" if status < 300 else body)
    assert not reader.closes


@given(BODIES, CUTS, CUTS)
def test_a_chunked_answer_is_whole_with_its_last_byte(body, sizes, cuts):
    data = chunked(body, sizes)
    assert read(data, cuts).status == 200


@given(TOKENS, CUTS, CUTS, st.booleans())
def test_a_stream_holds_as_many_tokens_as_it_says_or_else_as_events_with_text(tokens, sizes, cuts, has_usage):
    events = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
    events += [{"choices": [{"delta": {"content": token}}]} for token in tokens]
    if has_usage:
        events.append({"choices": [], "usage": {"completion_tokens": 77}})
    body = b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events) + b"data: [DONE]\n\n"
    data = chunked(body, sizes, b"text/event-stream; charset=utf-8")
    reader = read(data, cuts, reader=Reader(clock=lambda: 5.0))
    assert reader.events is not None
    assert reader.events.made == (77 if has_usage else len(tokens))
    assert reader.events.first == (5.0 if tokens else 0.0)


@given(st.lists(st.tuples(BODIES, st.booleans()), min_size=1, max_size=5), CUTS)
def test_one_reader_reads_answer_after_answer(answers, cuts):
    reader = Reader()
    for body, is_chunked in answers:
        plain = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        read(chunked(body, [7]) if is_chunked else plain, cuts, reader=reader)


@given(st.binary(max_size=200), CUTS)
def test_any_bytes_are_an_answer_or_a_broken_one(data, cuts):
    reader = Reader()
    try:
        for piece in pieces(data, cuts):
            reader.feed(piece)
    except BrokenAnswer:
        return
    assert data == b"" or reader.is_begun


@given(st.integers(0, 400), st.integers(0, 255), CUTS)
def test_an_answer_with_one_wrong_byte_is_read_or_broken_and_nothing_else(place, byte, cuts):
    data = bytearray(chunked(b"some words of an answer", [5]))
    data[place % len(data)] = byte
    reader = Reader()
    with contextlib.suppress(BrokenAnswer):  # and no other error
        for piece in pieces(bytes(data), cuts):
            reader.feed(piece)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/2 200\r\n\r\n",
        b"hello",
        b"HTTP/1.1 2xx OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabcd",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70000,
    ],
)
def test_what_is_no_answer_is_broken(data):
    with pytest.raises(BrokenAnswer):
        Reader().feed(data)


def test_a_refusal_tells_when_to_come_back():
    waits = {b"7": 7.0, b"0.5": 0.5, b"-3": 0.0, b"Wed, 21 Oct 2026 07:28:00 GMT": 1.0}
    for said, seconds in waits.items():
        reader = read(b"HTTP/1.1 429 No\r\nRetry-After: %b\r\ncontent-length: 0\r\n\r\n" % said, [1000])
        assert reader.retry_after_s == seconds


def test_an_answer_without_a_length_ends_with_its_connection():
    reader = Reader()
    assert not reader.feed(b"HTTP/1.1 200 OK\r\n\r\nsome")
    assert not reader.feed(b"thing")
    assert reader.end()
    assert reader.closes


def test_early_hints_are_not_the_answer():
    assert read(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", [1]).status == 204


def test_of_a_long_refusal_only_the_beginning_is_kept():
    reader = read(b"HTTP/1.1 500 No\r\ncontent-length: 100000\r\n\r\n" + b"x" * 100000, [999])
    assert len(reader.refusal) == 400
