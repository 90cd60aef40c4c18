"""What callers hand over becomes wire items, and errors become the exceptions they stand for."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.client import BadAnswer, ServerUnreachable
from shoal.client.answers import array, scores, vectors
from shoal.client.calls import quoted
from shoal.client.flow import ConnectionFailed, Outcome, Received, Terms
from shoal.client.inputs import chunked, encoded, listed
from shoal.client.refusals import accepted
from shoal.client.transport import direct_hosts, settings
from shoal.dialects.arrays import wire_array
from shoal.dialects.native import DIALECT
from shoal.protocol import errors
from shoal.protocol.errors import BY_CODE, Fault, InvalidInput, ShoalError, from_fault

TERMS = Terms(base_url="http://here:1", timeout_s=3.0)


def raws(*sizes: int) -> list[msgspec.Raw]:
    return [msgspec.Raw(b"x" * size) for size in sizes]


def test_a_bare_string_is_one_text_and_never_its_letters() -> None:
    assert listed("hello") == (True, ["hello"])
    assert listed(np.array("hello")) == (True, ["hello"])
    assert listed({"text": "hello", "id": "7"}) == (True, [{"text": "hello", "id": "7"}])


def test_lists_tuples_arrays_and_generators_are_many_texts_even_when_they_hold_one() -> None:
    for many in (["a"], ("a",), np.array(["a"]), (letter for letter in "a"), {"a": 1}.keys()):
        assert listed(many) == (False, ["a"])


@pytest.mark.parametrize("texts", [None, 7, b"bytes", bytearray(b"bytes")])
def test_what_is_no_text_at_all_is_refused_by_its_type(texts: object) -> None:
    with pytest.raises(InvalidInput, match=type(texts).__name__):
        listed(texts)  # type: ignore[arg-type]


@pytest.mark.parametrize("item", [None, 1.5, ["nested"], b"bytes", "\ud800", {"text": object()}])
def test_an_item_that_cannot_be_sent_is_refused_by_its_place(item: object) -> None:
    with pytest.raises(InvalidInput, match=r"texts\[3\]"):
        encoded(item, "texts[3]")  # type: ignore[arg-type]


def test_numpy_strings_are_sent_as_text() -> None:
    assert msgspec.msgpack.decode(encoded(np.str_("grün"), "texts[0]")) == {"text": "grün"}


@given(st.lists(st.integers(1, 50)), st.integers(1, 5), st.integers(1, 60))
def test_chunks_hold_every_item_once_in_order_and_keep_both_limits(
    sizes: list[int], max_items: int, max_bytes: int
) -> None:
    parts = list(chunked(raws(*sizes), max_items, max_bytes))
    assert [size for part in parts for size in sizes[part]] == sizes
    for part in parts:
        assert 1 <= len(sizes[part]) <= max_items
        assert sum(sizes[part]) <= max_bytes or len(sizes[part]) == 1


def test_chunks_are_no_smaller_than_they_must_be() -> None:
    assert list(chunked(raws(4, 4, 4, 9, 1, 1), 3, 8)) == [slice(0, 2), slice(2, 3), slice(3, 4), slice(4, 6)]


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", "|i1", "|u1", "<i8", "|b1"])
def test_arrays_survive_the_wire(dtype: str) -> None:
    sent = np.arange(6).reshape(2, 3).astype(dtype)
    received = array(msgspec.msgpack.decode(msgspec.msgpack.encode(wire_array(sent))))
    assert received.dtype == sent.dtype
    assert np.array_equal(received, sent)


@pytest.mark.parametrize(
    "packed",
    [
        {},
        {b"type": "<f4", b"shape": [2], b"data": b"123"},
        {b"type": "|O", b"shape": [1], b"data": b"12345678"},
        {b"type": ">f4", b"shape": [1], b"data": b"1234"},
        {b"type": ["<f4"], b"shape": [1], b"data": b"1234"},
        {b"type": "<f4", b"shape": [1] * 9, b"data": b"1234"},
        {b"type": "<f4", b"shape": None, b"data": b"1234"},
        {b"type": "<f4", b"shape": ["1"], b"data": b"1234"},
        {b"type": "<f4", b"shape": [1], b"data": "1234"},
    ],
)
def test_an_array_that_is_none_is_a_bad_answer(packed: dict[bytes, object]) -> None:
    with pytest.raises(BadAnswer):
        array(packed)


def test_fewer_or_more_vectors_than_texts_are_a_bad_answer() -> None:
    row = {"dense": {"values": wire_array(np.ones(2, "<f4"))}}
    with pytest.raises(BadAnswer, match="1 vectors for 2 inputs"):
        vectors(msgspec.msgpack.encode({"items": [row]}), range(2))


@pytest.mark.parametrize("ids", [["0"], ["0", "0"], ["0", "2"], ["0", "1", "2"]])
def test_scores_that_are_not_those_of_the_documents_are_a_bad_answer(ids: list[str]) -> None:
    with pytest.raises(BadAnswer):
        scores(msgspec.msgpack.encode({"scores": [{"item_id": name, "score": 0.5} for name in ids]}), range(2))


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_every_error_of_the_server_is_raised_as_its_own_class(code: str) -> None:
    sent = from_fault(Fault(code, "what happened", {"limit": 5}))
    reply = DIALECT.refuse(sent)
    with pytest.raises(ShoalError) as caught:
        accepted(Received(reply.status, dict(reply.headers), reply.body), TERMS)
    assert type(caught.value) is type(sent)
    assert caught.value.message == "what happened"
    assert caught.value.detail["limit"] == 5
    assert caught.value.detail["status"] == sent.status


def test_a_code_from_a_newer_server_is_an_internal_error_that_keeps_it() -> None:
    body = b'{"detail": {"code": "OUT_OF_TEA", "message": "no tea", "self": 1}}'
    with pytest.raises(errors.InternalError, match="no tea") as caught:
        accepted(Received(418, {"content-type": "application/json"}, body), TERMS)
    assert caught.value.detail == {"code": "OUT_OF_TEA", "status": 418}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (429, errors.RateLimited),
        (500, errors.InternalError),
    ],
)
@pytest.mark.parametrize("body", [b"", b"<html>oh", b"[]", b"{}", b'{"detail": 3}', b'{"error": {}}', b"\xff\xfe"])
def test_an_error_without_a_code_is_judged_by_its_status(status: int, kind: type[ShoalError], body: bytes) -> None:
    with pytest.raises(kind, match=f"http://here:1 answered {status}"):
        accepted(Received(status, {}, body), TERMS)


@pytest.mark.parametrize(
    ("outcome", "kind", "words"),
    [
        (
            ConnectionFailed("connect", "refused"),
            ServerUnreachable,
            "no server answers at http://here:1.*shoal serve",
        ),
        (ConnectionFailed("lost", "reset"), ConnectionError, "http://here:1 broke .*reset"),
        (ConnectionFailed("timeout", "slow"), errors.DeadlineExceeded, "http://here:1 within 3 s"),
        (Received(307, {"location": "https://there"}, b""), BadAnswer, "307 to https://there"),
    ],
)
def test_no_answer_is_told_with_the_url_and_what_to_do(
    outcome: Outcome, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        accepted(outcome, TERMS)
    assert isinstance(caught.value, ShoalError)


def test_a_models_name_keeps_its_slashes_in_the_path_and_nothing_else_of_meaning() -> None:
    assert quoted("org/name@2:int8") == "org/name@2:int8"
    assert quoted("a b?c#d%e") == "a%20b%3Fc%23d%25e"


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://here", "http://", "http://[::1", ""])
def test_a_base_url_that_is_none_is_refused_when_the_client_is_made(url: str) -> None:
    with pytest.raises(InvalidInput, match="base_url"):
        settings(url, None, "interactive")


def test_a_key_with_characters_that_no_header_carries_is_refused_and_its_white_space_is_not_part_of_it() -> None:
    with pytest.raises(InvalidInput, match="api_key"):
        settings("http://here", "ключ", "interactive")
    assert settings("http://here", "key\n", "interactive")["headers"]["authorization"] == "Bearer key"


@pytest.mark.parametrize(
    ("url", "direct"),
    [
        ("http://127.0.0.1:8080", {"all://127.0.0.1": None}),
        ("http://localhost", {"all://localhost": None}),
        ("http://[::1]:80", {"all://[::1]": None}),
        ("http://shoal.example.org", {}),
        ("http://10.0.0.1", {}),
    ],
)
def test_only_this_machine_is_reached_past_the_proxies(url: str, direct: dict[str, None]) -> None:
    assert direct_hosts(url) == direct
