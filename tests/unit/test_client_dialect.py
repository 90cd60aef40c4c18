"""What the client writes is what the native dialect reads, and the other way round; without a server."""

from typing import Any

import numpy as np
import pytest

from shoal.client import ItemsFailed, Ranked
from shoal.client.calls import Call
from shoal.client.encoding import encode
from shoal.client.flow import Received, Send, Terms
from shoal.client.scoring import score
from shoal.dialects import Timing
from shoal.dialects.native import DIALECT
from shoal.protocol.envelope import Envelope
from shoal.protocol.errors import EmptyInput
from shoal.protocol.facts import Facts
from shoal.tasks.encode import EncodeRequest, EncodeResponse, Text, Vector
from shoal.tasks.score import Document, Score, ScoreRequest, ScoreResponse

TERMS = Terms(base_url="http://here")
FACTS = Facts(tasks=("encode", "score"), family="bert", files="none", max_tokens=128, dims=2)
FAULT = EmptyInput("the text is empty").fault()


def asked(call: Call[Any], task: str) -> tuple[Any, Any]:
    """The request as the dialect reads it, and a function that answers the call with a task's response."""
    (flow,) = call.flows
    send = flow.send(None)
    assert isinstance(send, Send)
    sent = send.request
    envelope = Envelope(
        id="1", task=task, model="m", line="m", dialect="native", route=task, deadline=0.0, received=0.0,
        content_type=sent.headers["content-type"], accept=sent.headers["accept"],
    )  # fmt: skip
    request = DIALECT.decode(envelope, sent.body)

    def answer(response: Any) -> Any:
        reply = DIALECT.encode(envelope, request, response, FACTS, Timing())
        with pytest.raises(StopIteration) as end:
            flow.send(Received(reply.status, dict(reply.headers), reply.body))
        return call.join([end.value.value])

    return request, answer


def test_every_option_of_encode_reaches_the_task() -> None:
    request, _ = asked(
        encode(
            TERMS, "m", ["a", {"text": "b", "id": "7"}], is_query=True, prompt="p", instruction="i",
            dimensions=2, dtype="int8", normalize=False, truncate="error",
        ),
        "encode",
    )  # fmt: skip
    assert request == EncodeRequest(
        inputs=[Text("a"), Text("b", id="7")], kinds=("dense",), is_query=True, prompt="p", instruction="i", dims=2,
        dtype="int8", normalize=False, truncate="error",
    )  # fmt: skip


def test_without_options_the_task_gets_its_defaults() -> None:
    assert asked(encode(TERMS, "m", "a"), "encode")[0] == EncodeRequest(inputs=[Text("a")], kinds=("dense",))
    request = asked(score(TERMS, "m", "q", ["a"]), "score")[0]
    assert request == ScoreRequest(query="q", documents=[Document("a", "0")])


def test_every_option_of_score_reaches_the_task() -> None:
    request, _ = asked(score(TERMS, "m", "q", ["a"], raw=True, instruction="i", truncate="start"), "score")
    expected = ScoreRequest(query="q", documents=[Document("a", "0")], raw=True, instruction="i", truncate="start")
    assert request == expected


def test_vectors_come_back_as_they_were_and_faults_in_their_places() -> None:
    rows = np.array([[1.5, -2.0], [0.25, 3.0]], "<f4")
    vectors = [Vector(dense=rows[0]), Vector(fault=FAULT), Vector(dense=rows[1])]
    _, answer = asked(encode(TERMS, "m", ["a", "", "b"], errors="return"), "encode")
    first, second, third = answer(EncodeResponse(vectors=vectors, dims=2, dtype="float32", tokens=6, truncated=0))
    assert np.array_equal([first, third], rows)
    assert isinstance(second, EmptyInput)


def test_texts_that_all_failed_are_failed_items_and_not_a_failed_call() -> None:
    _, answer = asked(encode(TERMS, "m", ["", " "]), "encode")
    vectors = [Vector(fault=FAULT), Vector(fault=FAULT)]
    with pytest.raises(ItemsFailed) as caught:
        answer(EncodeResponse(vectors=vectors, dims=2, dtype="float32", tokens=0, truncated=0))
    assert caught.value.indices == [0, 1]


def test_scores_come_back_ranked_under_their_own_documents() -> None:
    _, answer = asked(score(TERMS, "m", "q", ["low", "high"]), "score")
    ranked = answer(ScoreResponse(scores=[Score(0, -1.0), Score(1, 2.0)], tokens=4, truncated=0))
    assert ranked == [Ranked(1, 2.0, "high"), Ranked(0, -1.0, "low")]
