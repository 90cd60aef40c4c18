"""What the client writes is what the native dialect reads, and the other way round; without a server."""

from typing import Any

import msgspec
import numpy as np
import pytest

from shoal.client import ItemsFailed, Ranked
from shoal.client import Sparse as SparseArrays
from shoal.client.calls import Call
from shoal.client.encoding import encode
from shoal.client.flow import Received, Send, Terms
from shoal.client.scoring import score
from shoal.dialects import Timing
from shoal.dialects.native import DIALECT
from shoal.protocol.envelope import Envelope
from shoal.protocol.errors import EmptyInput
from shoal.protocol.facts import Facts
from shoal.tasks.encode import EncodeRequest, EncodeResponse, Sparse, Text, Vector
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
            TERMS, "m", ["a", {"text": "b", "id": "7"}], is_query=True, prompt_name="p", instruction="i",
            dimensions=2, dtype="int8", normalize=False, truncate="error",
        ),
        "encode",
    )  # fmt: skip
    assert request == EncodeRequest(
        inputs=[Text("a"), Text("b", id="7")], kinds=("dense",), is_query=True, prompt="p", instruction="i",
        dims=2, dtype="int8", normalize=False, truncate="error",
    )  # fmt: skip


def test_without_options_the_task_gets_its_defaults() -> None:
    assert asked(encode(TERMS, "m", "a"), "encode")[0] == EncodeRequest(inputs=[Text("a")], kinds=("dense",))
    request = asked(score(TERMS, "m", "q", ["a"]), "score")[0]
    assert request == ScoreRequest(query="q", documents=[Document("a", "0")])


def test_every_option_of_score_reaches_the_task() -> None:
    options = {"raw": True, "instruction": "i", "prompt_name": "p", "label": "l", "truncate": "start"}
    request, _ = asked(score(TERMS, "m", "q", ["a"], **options), "score")
    options["prompt"] = options.pop("prompt_name")
    assert request == ScoreRequest(query="q", documents=[Document("a", "0")], **options)


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


def test_each_kind_of_vector_comes_back_as_it_was() -> None:
    weights = Sparse(np.array([3, 9], "<i4"), np.array([0.5, 2.0], "<f4"))
    tokens = np.array([[1, 2], [3, 4], [5, 6]], "<f2")
    for kinds, vector in (
        ("sparse", Vector(sparse=weights)),
        ("multivector", Vector(multivector=tokens)),
    ):
        request, answer = asked(encode(TERMS, "m", ["a", "b"], kinds=kinds), "encode")
        assert request.kinds == (kinds,)
        given = EncodeResponse(vectors=[vector, vector], dims=0, dtype="float32", tokens=6, truncated=0)
        first, second = answer(given)
        for got in (first, second, asked(encode(TERMS, "m", "a", kinds=kinds), "encode")[1](one(given))):
            if kinds == "sparse":
                assert np.array_equal(got.indices, weights.indices)
                assert np.array_equal(got.values, weights.values)
                assert (got.indices.dtype, got.values.dtype) == (np.int32, np.float32)
            else:
                assert np.array_equal(got, tokens)
                assert got.dtype == np.float16
            assert isinstance(got, SparseArrays if kinds == "sparse" else np.ndarray)


def one(response: EncodeResponse) -> EncodeResponse:
    return msgspec.structs.replace(response, vectors=response.vectors[:1])


def test_an_empty_sparse_vector_and_one_without_tokens_come_back_empty() -> None:
    nothing = Sparse(np.empty(0, "<i4"), np.empty(0, "<f4"))
    for kinds, vector in (
        ("sparse", Vector(sparse=nothing)),
        ("multivector", Vector(multivector=np.empty((0, 2)))),
    ):
        _, answer = asked(encode(TERMS, "m", ["a"], kinds=kinds), "encode")
        (got,) = answer(EncodeResponse(vectors=[vector], dims=0, dtype="float32", tokens=6, truncated=0))
        assert len(got[0]) == 0 if kinds == "sparse" else got.shape == (0, 2)


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f4"])
def test_vectors_to_be_scored_reach_the_task_as_they_were(dtype: str) -> None:
    query, first, second = (np.arange(n * 2).reshape(n, 2).astype(dtype) for n in (3, 1, 2))
    documents = [first, {"multivector": second.tolist()}, {"multivector": second, "text": "x"}, "text"]
    request, _ = asked(score(TERMS, "m", query, documents, label="yes"), "score")
    assert np.array_equal(request.query_vectors, query)
    assert [None if each.vectors is None else each.vectors.tolist() for each in request.documents] == [
        first.tolist(), second.tolist(), second.tolist(), None,
    ]  # fmt: skip
    assert (request.label, request.documents[3].text) == ("yes", "text")


def test_one_matrix_is_one_document_and_a_stack_of_them_many() -> None:
    stack = np.ones((3, 2, 4), np.float32)
    for documents, count in ((stack[0], 1), (stack, 3), (list(stack), 3)):
        assert len(asked(score(TERMS, "m", "q", documents), "score")[0].documents) == count


def test_scores_come_back_ranked_under_their_own_documents() -> None:
    _, answer = asked(score(TERMS, "m", "q", ["low", "high"]), "score")
    ranked = answer(ScoreResponse(scores=[Score(0, -1.0), Score(1, 2.0)], tokens=4, truncated=0))
    assert ranked == [Ranked(1, 2.0, "high"), Ranked(0, -1.0, "low")]
