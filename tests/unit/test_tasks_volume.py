"""One request cannot ask for more token vectors than an answer, or the node, should hold."""

import pytest

from shoal.protocol.errors import PayloadTooLarge
from shoal.protocol.facts import Facts, MultiVector
from shoal.tasks.encode import TASK as ENCODE
from shoal.tasks.encode import EncodeRequest, Text
from shoal.tasks.score import TASK as SCORE
from shoal.tasks.score import Document, ScoreRequest

COLBERT = Facts(
    tasks=("encode", "score"), family="bert", files="safetensors", max_tokens=512, kinds=("multivector",),
    multivector=MultiVector(dims=128, query_tokens=32),
)  # fmt: skip
LONG = "word " * 512


def encode(number: int, text: str = LONG, facts: Facts = COLBERT, **asked: object) -> int:
    inputs = [Text(text)] * number
    return len(ENCODE.split(EncodeRequest(inputs=inputs, **asked), facts))  # type: ignore[arg-type]


def score(number: int, text: str = LONG) -> int:
    request = ScoreRequest(query="q", documents=[Document(text)] * number)
    return len(SCORE.split(request, COLBERT))


def test_a_thousand_long_documents_are_scored_and_five_hundred_encoded():
    assert score(1000) == 1001
    assert encode(500) == 500


def test_more_token_vectors_than_an_answer_should_hold_are_refused():
    with pytest.raises(PayloadTooLarge, match="262656 token vectors of 128 dims, over the limit of 262144; send"):
        encode(513)
    with pytest.raises(PayloadTooLarge, match="over the limit of 524288"):
        score(1025)


def test_what_counts_is_how_many_tokens_the_texts_can_have():
    assert encode(10_000, "a fish") == 10_000
    assert encode(8_000, LONG, is_query=True) == 8_000  # 32 tokens each
    with pytest.raises(PayloadTooLarge):
        encode(8_000, "a", is_query=True, kinds=("multivector",), max_tokens=0, facts=expanded(64))
    with pytest.raises(PayloadTooLarge):
        encode(600, "鱼" * 300)


def expanded(tokens: int) -> Facts:
    return Facts(
        tasks=("encode",), family="bert", files="safetensors", max_tokens=512, kinds=("multivector",),
        multivector=MultiVector(dims=128, query_tokens=tokens),
    )  # fmt: skip


def test_other_kinds_of_vectors_are_not_bounded_by_it():
    facts = Facts(tasks=("encode",), family="bert", files="safetensors", max_tokens=512, dims=4096)
    assert encode(10_000, facts=facts) == 10_000
