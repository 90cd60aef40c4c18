"""What is let in and what a path means: pure functions of heads and limits."""

from pathlib import Path

import pytest

from shoal.catalog import Card, Folder, Model
from shoal.gateway import admission, routing
from shoal.gateway.settings import GatewaySettings
from shoal.protocol.errors import InvalidInput, MethodNotAllowed, NotFound, PayloadTooLarge
from shoal.protocol.facts import Facts

SETTINGS = GatewaySettings()


def test_a_model_with_slashes_is_the_rest_of_the_path():
    target = routing.find("POST", "/v1/encode/org/name:int8")
    assert (target.dialect.name, target.route.task, target.model) == ("native", "encode", "org/name:int8")


def test_a_path_without_its_model_and_an_unknown_one_are_not_found():
    for path in ("/v1/encode/", "/v1/encode", "/v2/nothing", "", "/v1/embeddings/"):
        with pytest.raises(NotFound):
            routing.find("POST", path)


def test_a_wrong_method_is_refused_naming_the_right_one():
    with pytest.raises(MethodNotAllowed) as refused:
        routing.find("GET", "/v1/embeddings")
    assert refused.value.detail["allow"] == ["POST"]


def test_a_declared_size_over_the_limit_is_refused_before_anything_is_read():
    with pytest.raises(PayloadTooLarge, match="--max-body-bytes"):
        admission.declared_size({b"content-length": b"99999999999"}, SETTINGS)
    assert admission.declared_size({b"content-length": b"12"}, SETTINGS) == 12
    assert admission.declared_size({b"content-length": b"-1"}, SETTINGS) == -1
    assert admission.declared_size({}, SETTINGS) == -1


@pytest.mark.parametrize("raw", [b"0", b"-5", b"1.5", b"soon", b"", b"9" * 40, "²".encode("latin-1")])
def test_a_timeout_that_is_no_sane_number_is_refused(raw):
    with pytest.raises(InvalidInput):
        admission.timeout_of({b"x-shoal-timeout-ms": raw}, SETTINGS)


def test_a_timeout_is_in_milliseconds_with_a_default_and_a_limit_that_is_named():
    assert admission.timeout_of({}, SETTINGS) == 120.0
    assert admission.timeout_of({b"x-shoal-timeout-ms": b"1500"}, SETTINGS) == 1.5
    with pytest.raises(InvalidInput, match="--max-timeout"):
        admission.timeout_of({b"x-shoal-timeout-ms": b"700000"}, SETTINGS)


def model(name: str, base: str = "") -> Model:
    facts = Facts(tasks=("encode",), family="bert", files="safetensors", max_tokens=256)
    card = Card(name=name, source=Folder("nowhere"), base=base)
    return Model(card=card, facts=facts, folder=Path("nowhere"), digest="ab" * 32, size_bytes=1)


def test_an_adapter_waits_in_the_line_of_its_base():
    target = routing.find("POST", "/v1/encode/team/lora")
    envelope = admission.envelope(target, model("team/lora", base="org/m"), {}, 77, SETTINGS, 1000.0, "id")
    assert (envelope.model, envelope.line) == ("team/lora", "org/m")


def test_the_envelope_holds_what_the_road_needs_and_nothing_of_the_body():
    target = routing.find("POST", "/v1/encode/m")
    headers = {b"content-type": b"application/msgpack", b"x-shoal-priority": b"batch", b"accept": b"*/*"}
    envelope = admission.envelope(target, model("org/m"), headers, 77, SETTINGS, 1000.0, "id", "key-1")
    assert (envelope.line, envelope.task, envelope.route) == ("org/m", "encode", target.route.name)
    assert (envelope.deadline, envelope.size_bytes, envelope.priority) == (1120.0, 77, "batch")
    assert envelope.tenant == "key-1"
    with pytest.raises(InvalidInput, match="X-Shoal-Priority"):
        admission.envelope(target, model("m"), {b"x-shoal-priority": b"urgent"}, 1, SETTINGS, 0.0, "id")


def test_a_path_that_dialects_share_is_the_one_whose_keys_the_body_has():
    shared = routing.find("POST", "/rerank")
    for body, dialect in (
        (b'{"query": "q", "texts": ["a"]}', "tei"),
        (b'{"query": "q", "documents": ["texts"]}', "cohere"),
        (b'{"query": "q", "nested": {"texts": 1}}', "cohere"),
        (b'{"query": "q"', "cohere"),
        (b'["texts"]', "cohere"),
        (b"", "cohere"),
    ):
        assert shared.of(body).dialect.name == dialect


def test_a_path_of_one_dialect_is_its_own_whatever_the_body():
    for path, dialect in (("/v1/rerank", "cohere"), ("/embed", "tei"), ("/v1/embeddings", "openai")):
        target = routing.find("POST", path)
        assert target.of(b'{"texts": [], "documents": []}').dialect.name == dialect
