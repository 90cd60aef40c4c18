"""What every refusal says whatever its shape: which field was wrong, the limit, the size seen and the setting."""

import msgspec
import pytest

from shoal.dialects.bodies import decode
from shoal.dialects.refusals import for_anyone
from shoal.protocol.errors import InvalidInput, ModelNotFound, PayloadTooLarge, over_limit


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
