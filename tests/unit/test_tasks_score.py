import numpy as np
import pytest

from shoal.protocol.errors import EmptyInput, Fault, InvalidInput
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item, Output
from shoal.protocol.tensors import Tensor
from shoal.tasks import task_named
from shoal.tasks.score import Document, ScoreRequest

FACTS = Facts(tasks=("score",), family="cross", files="onnx", max_tokens=512)
SIGMOID = Facts(tasks=("score",), family="cross", files="onnx", max_tokens=512, activation="sigmoid")
TASK = task_named("score")


def request(*documents: str, query: str = "q", **asked: object) -> ScoreRequest:
    return ScoreRequest(query=query, documents=[Document(d) for d in documents], **asked)


def logit(value: float, tokens: int = 5) -> Output:
    return Output({"score": Tensor.of(np.array(value, np.float32))}, tokens=tokens)


def test_each_document_makes_a_pair_with_the_query():
    items = TASK.split(request("a", "b", instruction="Rank: ", truncate="start"), FACTS)
    assert items == [Item("q", pair=text, prompt="Rank: ", truncate="start", raw=True) for text in ("a", "b")]


def test_an_empty_document_is_a_fault_and_an_empty_query_an_error():
    first, second = TASK.split(request("", "b"), FACTS)
    assert first.code == "EMPTY_INPUT"
    assert isinstance(second, Item)
    with pytest.raises(EmptyInput, match="query"):
        TASK.split(request("a", query=" "), FACTS)
    with pytest.raises(InvalidInput, match="surrogate"):
        TASK.split(request("a", query="\ud800"), FACTS)


def test_a_model_that_cannot_score_says_what_it_can():
    facts = Facts(tasks=("encode",), family="bert", files="onnx", max_tokens=9)
    with pytest.raises(InvalidInput, match="cannot score; it can encode"):
        TASK.split(request("a"), facts)


def test_scores_keep_the_order_of_the_request_and_rank_best_first():
    fault = Fault("EMPTY_INPUT", "e")
    response = TASK.join(request("a", "", "c", "d"), FACTS, [logit(-1), Output(fault=fault), logit(4), logit(-1)])
    assert [score.score for score in response.scores] == [-1, None, 4, -1]
    assert [score.index for score in response.ranked()] == [2, 0, 3, 1]
    assert response.ranked()[-1].fault == fault
    assert response.tokens == 15


@pytest.mark.parametrize(
    ("facts", "asked", "expected"),
    [
        (FACTS, {}, 2.0),
        (FACTS, {"sigmoid": True}, 0.8807970779778823),
        (SIGMOID, {}, 0.8807970779778823),
        (SIGMOID, {"raw": True}, 2.0),
        (SIGMOID, {"raw": True, "sigmoid": True}, 2.0),
    ],
)
def test_a_score_is_the_logit_unless_model_or_caller_want_a_sigmoid(facts, asked, expected):
    response = TASK.join(request("a", **asked), facts, [logit(2)])
    assert response.scores[0].score == pytest.approx(expected, abs=1e-15)


def test_sigmoid_neither_overflows_nor_ties_close_scores():
    logits = [-3e38, -90.0, 20.0, 20.00001, 3e38]
    response = TASK.join(request(*"abcde", sigmoid=True), FACTS, [logit(x) for x in logits])
    scores = [score.score for score in response.scores]
    assert scores == sorted(scores)
    assert scores[2] < scores[3] < 1.0
    assert (scores[0], scores[-1]) == (0.0, 1.0)


def test_a_score_may_come_as_a_row_of_one():
    output = Output({"score": Tensor.of(np.array([1.5], np.float32))})
    assert TASK.join(request("a"), FACTS, [output]).scores[0].score == 1.5
