import tracemalloc
from collections import Counter

import pytest
from answering import EVERY_KIND, RERANKER

from shoal.dialects import all_dialects
from shoal.protocol.envelope import Envelope
from shoal.protocol.errors import InvalidInput, ShoalError
from shoal.tasks import task_named
from shoal.testing.malformed import TEMPLATES, malformed

SEEDS = 3000
MODELS = {
    "encode": (EVERY_KIND,),
    "tokenize": (EVERY_KIND,),
    "score": (RERANKER, EVERY_KIND),
    "predict": (RERANKER,),
}
ROUTES = [(dialect, route) for dialect in all_dialects().values() for route in dialect.routes]


def outcome(dialect, route, headers: dict[str, str], body: bytes) -> str:
    """The code it was refused with, or "valid". Anything but a refusal is a defect and is raised."""
    envelope = Envelope(
        id="r",
        task=route.task,
        model="org/m",
        line="org/m",
        dialect=dialect.name,
        route=route.name,
        deadline=0.0,
        received=0.0,
        content_type=headers.get("content-type", ""),
    )
    try:
        request = dialect.decode(envelope, body)
        for facts in MODELS.get(route.name, MODELS[route.task]):
            task_named(route.task).split(request, facts)
    except ShoalError as error:
        reply = dialect.refuse(error)
        return error.code if 400 <= reply.status < 500 and len(reply.body) < 2000 else f"bad {reply}"
    return "valid"


def count(dialect, route) -> Counter:
    return Counter(outcome(dialect, route, *malformed(route.name, seed)) for seed in range(SEEDS))


@pytest.mark.parametrize(("dialect", "route"), ROUTES, ids=[route.name for _, route in ROUTES])
def test_malformed_bodies_are_refused_with_a_4xx_and_few_are_valid(dialect, route):
    codes = count(dialect, route)
    assert codes.keys() <= {"valid", "INVALID_INPUT", "EMPTY_INPUT", "MODEL_NOT_FOUND", "UNSUPPORTED_MEDIA_TYPE"}
    assert codes["INVALID_INPUT"] > SEEDS / 3  # the smallest bodies have few ways to be spoilt
    assert codes["UNSUPPORTED_MEDIA_TYPE"] > 0
    assert 0 < codes["valid"] < SEEDS / 4


@pytest.mark.parametrize(("dialect", "route"), ROUTES, ids=[route.name for _, route in ROUTES])
def test_peeking_into_malformed_bodies_finds_a_name_or_refuses(dialect, route):
    for seed in range(SEEDS):
        try:
            assert isinstance(dialect.peek(route.name, malformed(route.name, seed)[1]), str)
        except InvalidInput:
            continue


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_seed_always_gives_the_same_and_most_seeds_something_else(name):
    made = [malformed(name, seed) for seed in range(SEEDS)]
    assert made[:50] == [malformed(name, seed) for seed in range(50)]
    # The smallest bodies have few ways to be spoilt.
    assert len({(str(headers), body) for headers, body in made}) > SEEDS / 3


def test_every_computing_route_is_covered():
    assert {route.name for _, route in ROUTES} <= set(TEMPLATES)


ARRAY_OF_MILLIONS = b"\x81\xa5items\xdd\x00\x4c\x4b\x40" + b"\x80" * 5_000_000


@pytest.mark.parametrize(
    ("route", "content_type", "body"),
    [
        ("encode", "application/json", b'{"items":[' + b"{}," * 600_000 + b"{}]}"),
        ("encode", "application/msgpack", ARRAY_OF_MILLIONS),
        ("embeddings", "application/json", b'{"model":"m","input":[' + b"[]," * 600_000 + b"[]]}"),
    ],
)
def test_a_body_that_would_grow_a_hundredfold_is_refused_before_it_does(route, content_type, body):
    dialect, found = next((dialect, found) for dialect, found in ROUTES if found.name == route)
    tracemalloc.start()
    try:
        code = outcome(dialect, found, {"content-type": content_type}, body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert code in ("INVALID_INPUT", "PAYLOAD_TOO_LARGE")
    assert peak < 20_000_000
