"""What every refusal says whatever its shape: which field was wrong, the limit, the size seen and the setting."""

import msgspec
import pytest

from shoal.catalog.artifacts import need_space
from shoal.catalog.budget import to_evict
from shoal.dialects.bodies import decode
from shoal.dialects.refusals import for_anyone
from shoal.protocol import sizes
from shoal.protocol.errors import (
    InvalidInput,
    ModelNotFound,
    PayloadTooLarge,
    ResourceExhausted,
    over_limit,
)


class Body(msgspec.Struct):
    input: str | list[list[int]]
    truncate: bool = False


decoder = msgspec.json.Decoder(Body)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"input": 3}', "input"),
        (b'{"input": [[1], ["a"]]}', "input[1][0]"),
        (b'{"input": "a", "truncate": "no"}', "truncate"),
        (b'{"truncate": true}', None),
        (b"[1]", None),
        (b"{", None),
    ],
)
def test_a_body_with_a_wrong_field_is_refused_with_its_place(body, param):
    with pytest.raises(InvalidInput) as refused:
        decode(decoder, body)
    assert refused.value.detail == ({"param": param} if param else {})


def test_outside_of_any_one_api_an_error_has_the_shape_of_each():
    reply = for_anyone(ModelNotFound("no model is called 'x'"))
    fields = {"code": "MODEL_NOT_FOUND", "message": "no model is called 'x'"}
    assert (reply.status, msgspec.json.decode(reply.body)) == (404, {"detail": fields, "error": fields})


@pytest.mark.parametrize(
    ("seen", "limit", "words"),
    [
        (34_603_069, 32 << 20, "the body is 34603069 bytes, over the limit of 33554432 bytes; --most changes it"),
        (2.5, 2.0, "the body is 2.5 bytes, over the limit of 2 bytes; --most changes it"),
    ],
)
def test_a_size_over_a_limit_is_written_out(seen, limit, words):
    error = over_limit(PayloadTooLarge, "the body", seen=seen, limit=limit, setting="--most", unit="bytes")
    assert error.message == words
    assert error.detail == {"seen": seen, "limit": limit, "setting": "--most"}


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [
        (0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1000, "1.0 kB"), (43_210, "43.2 kB"),
        (999_940, "999.9 kB"), (999_950, "1.0 MB"), (90_868_376, "90.9 MB"), (1_340_000_000, "1.3 GB"),
        (4_000_000_000_000, "4000.0 GB"),
    ],
)  # fmt: skip
def test_a_size_is_written_in_the_unit_in_which_it_is_something(size_bytes, words):
    assert sizes.in_words(size_bytes) == words


def test_no_refusal_calls_a_small_file_nothing(tmp_path):
    error = over_limit(
        PayloadTooLarge, "adapter x", seen=812_000, limit=500_000, setting="--a", written=sizes.in_words
    )
    assert error.message == "adapter x is 812.0 kB, over the limit of 500.0 kB; --a changes it"
    with pytest.raises(ResourceExhausted, match=r"needs 800\.0 kB beside 0 bytes of others, over the budget"):
        to_evict({}, {}, 800_000, 20_000, may_evict=False)
    with pytest.raises(ResourceExhausted, match=r"needs 1000000000\.0 GB and its disk has \d+\.\d [kMG]B left"):
        need_space(tmp_path, 10**18)
