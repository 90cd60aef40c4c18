import numpy as np
import pytest

from shoal.protocol.errors import EmptyInput, Fault, InferenceError, InvalidInput
from shoal.protocol.facts import Facts, MultiVector
from shoal.protocol.items import Item, Output
from shoal.protocol.tensors import Tensor
from shoal.tasks import task_named
from shoal.tasks.score import Document, ScoreRequest

FACTS = Facts(tasks=("score",), family="cross", files="onnx", max_tokens=512)
SIGMOID = Facts(tasks=("score",), family="cross", files="onnx", max_tokens=512, activation="sigmoid")
NLI = Facts(
    tasks=("score",),
    family="bert",
    files="safetensors",
    max_tokens=512,
    labels=("contradiction", "entailment", "neutral"),
    activation="softmax",
)
COLBERT = Facts(
    tasks=("encode", "score"),
    family="bert",
    files="safetensors",
    max_tokens=512,
    kinds=("multivector",),
    multivector=MultiVector(dims=2),
    prompts={"query": "q: ", "document": "d: "},
)
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
        (FACTS, {"bounded": True}, 0.8807970779778823),
        (SIGMOID, {}, 0.8807970779778823),
        (SIGMOID, {"raw": True}, 2.0),
        (SIGMOID, {"raw": True, "bounded": True}, 2.0),
    ],
)
def test_a_score_is_the_logit_unless_model_or_caller_want_a_sigmoid(facts, asked, expected):
    response = TASK.join(request("a", **asked), facts, [logit(2)])
    assert response.scores[0].score == pytest.approx(expected, abs=1e-15)


def test_sigmoid_neither_overflows_nor_ties_close_scores():
    logits = [-3e38, -90.0, 20.0, 20.00001, 3e38]
    response = TASK.join(request(*"abcde", bounded=True), FACTS, [logit(x) for x in logits])
    scores = [score.score for score in response.scores]
    assert scores == sorted(scores)
    assert scores[2] < scores[3] < 1.0
    assert (scores[0], scores[-1]) == (0.0, 1.0)


def test_a_score_may_come_as_a_row_of_one():
    output = Output({"score": Tensor.of(np.array([1.5], np.float32))})
    assert TASK.join(request("a"), FACTS, [output]).scores[0].score == 1.5


def logits(*values: float) -> Output:
    return Output({"score": Tensor.of(np.array(values, np.float32))}, tokens=5)


def vectors(*rows: tuple[float, float]) -> Output:
    return Output({"multivector": Tensor.of(np.array(rows, np.float32).reshape(-1, 2))}, tokens=len(rows) + 2)


def test_of_several_labels_the_request_names_the_one_that_is_the_score():
    for label, expected in (("entailment", 3.0), ("neutral", -1.0)):
        asked = request("a", label=label, raw=True)
        assert TASK.split(asked, NLI) == [Item("q", pair="a", raw=True)]
        assert TASK.join(asked, NLI, [logits(1, 3, -1)]).scores[0].score == expected


@pytest.mark.parametrize(
    ("facts", "asked", "words"),
    [
        (NLI, {}, "label is missing; this model has: contradiction, entailment, neutral"),
        (NLI, {"label": "maybe"}, "no label named 'maybe'"),
        (FACTS, {"label": "entailment"}, "it gives one score"),
        (COLBERT, {"label": "entailment"}, "it gives one score"),
    ],
)
def test_a_label_that_is_not_there_or_not_named_is_refused_naming_those_there_are(facts, asked, words):
    with pytest.raises(InvalidInput, match=words) as refused:
        TASK.split(request("a", **asked), facts)
    assert refused.value.detail["param"] == "label"


def test_several_labels_are_activated_together_and_come_all_where_every_one_is_asked_for():
    (one,) = TASK.join(request("a", label="entailment"), NLI, [logits(0, np.log(3), 0)]).scores
    assert one.score == pytest.approx(0.6, abs=1e-7)
    (every,) = TASK.join(request("a", every_label=True), NLI, [logits(0, np.log(3), 0)]).scores
    assert every.labels == pytest.approx((0.2, 0.6, 0.2), abs=1e-7)
    assert every.score == max(every.labels)
    far = TASK.join(request("a", every_label=True, bounded=True), NLI, [logits(-3e38, 3e38, 0)]).scores[0]
    assert far.labels == (0.0, 1.0, 0.0)


def test_a_document_may_bring_its_own_query_or_be_read_alone():
    documents = [Document("a", query="x"), Document("b"), Document("c", query=" ")]
    entries = TASK.split(ScoreRequest(query=None, documents=documents, every_label=True), NLI)
    assert entries[:2] == [Item("x", pair="a", raw=True), Item("b", raw=True)]
    assert entries[2].code == "EMPTY_INPUT"


def test_late_interaction_encodes_the_query_and_each_document_by_itself():
    entries = TASK.split(request("a", "", "b", truncate="start"), COLBERT)
    query, first, empty, last = entries
    assert query == Item("q", prompt="q: ", truncate="start", kinds=("multivector",), is_query=True)
    assert first == Item("a", prompt="d: ", truncate="start", kinds=("multivector",), is_query=False)
    assert empty.code == "EMPTY_INPUT"
    assert last.text == "b"
    with pytest.raises(EmptyInput, match="query"):
        TASK.split(request("a", query=" "), COLBERT)
    assert TASK.split(request("a", instruction="Find: "), COLBERT)[0].prompt == "Find: "
    assert TASK.split(request("a", prompt="document"), COLBERT)[0].prompt == "d: "


def test_maxsim_is_the_sum_over_query_tokens_of_their_best_match():
    outputs = [vectors((1, 0), (0, 1)), vectors((1, 0), (0.5, 0.5)), vectors((0, 1)), vectors((-1, -1))]
    response = TASK.join(request("a", "b", "c"), COLBERT, outputs)
    assert [score.score for score in response.scores] == [1.5, 1.0, -2.0]
    assert [score.index for score in response.ranked()] == [0, 1, 2]
    assert response.tokens == 4 + 4 + 3 + 3
    mean = TASK.join(request("a", "b", "c", bounded=True), COLBERT, outputs)
    assert [score.score for score in mean.scores] == [0.75, 0.5, -1.0]


def test_vectors_of_the_client_stand_in_for_texts_and_nothing_is_computed_for_them():
    given = np.array([[1, 0], [0, 1]], "<f2")
    documents = [
        Document(vectors=np.array([[0.5, 0.25]])),
        Document("b"),
        Document("text is not read", vectors=given),
    ]
    asked = ScoreRequest(query="", query_vectors=given, documents=documents)
    query, first, text, last = TASK.split(asked, COLBERT)
    assert isinstance(text, Item)
    response = TASK.join(asked, COLBERT, [query, first, vectors((0, 0)), last])
    assert [score.score for score in response.scores] == [0.75, 0.0, 2.0]
    assert response.tokens == 3


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (np.zeros((2, 3)), "3 dims a token; this model has 2"),
        (np.zeros(2), "shape 2;"),
        (np.zeros((0, 2)), "shape 0 by 2"),
        (np.zeros((1, 2, 2)), "shape 1 by 2 by 2"),
        (np.array([[1, np.nan]]), "not finite"),
        (np.array([[1, 1e39]]), "not finite"),
    ],
)
def test_vectors_of_a_wrong_shape_are_a_fault_of_their_document_and_an_error_of_a_query(wrong, words):
    _, bad, good = TASK.split(ScoreRequest(query="q", documents=[Document(vectors=wrong), Document("b")]), COLBERT)
    assert bad.code == "INVALID_INPUT"
    assert words in bad.message
    assert isinstance(good, Item)
    with pytest.raises(InvalidInput, match="query: multivector"):
        TASK.split(ScoreRequest(query="", query_vectors=wrong, documents=[Document("b")]), COLBERT)


def test_vectors_are_refused_where_texts_are_read_together():
    (entry,) = TASK.split(ScoreRequest(query="q", documents=[Document(vectors=np.zeros((1, 2)))]), FACTS)
    assert "reads texts" in entry.message
    with pytest.raises(InvalidInput, match="reads texts"):
        TASK.split(ScoreRequest(query="", query_vectors=np.zeros((1, 2)), documents=[Document("a")]), FACTS)


def test_a_query_that_could_not_be_encoded_is_the_requests_error_and_a_document_its_own():
    fault = Fault("INFERENCE_ERROR", "broken")
    scores = TASK.join(request("a", "b"), COLBERT, [vectors((1, 0)), Output(fault=fault), vectors((1, 0))]).scores
    assert [(score.score, score.fault) for score in scores] == [(None, fault), (1.0, None)]
    with pytest.raises(InferenceError, match="query: broken"):
        TASK.join(request("a"), COLBERT, [Output(fault=fault), vectors((1, 0))])


def test_a_text_of_which_no_token_has_a_vector_has_no_score():
    assert TASK.join(request("..."), COLBERT, [vectors((1, 0)), vectors()]).scores[0].fault.code == "EMPTY_INPUT"
    with pytest.raises(EmptyInput, match="no token"):
        TASK.join(request("a"), COLBERT, [vectors(), vectors((1, 0))])


def test_a_prompt_by_name_is_put_before_the_query_and_an_unknown_one_refused():
    facts = Facts(tasks=("score",), family="bert", files="onnx", max_tokens=9, prompts={"query": "Q: "})
    assert TASK.split(request("a", prompt="query"), facts)[0].prompt == "Q: "
    for each in (facts, COLBERT):
        with pytest.raises(InvalidInput, match="no prompt named 'poem'"):
            TASK.split(request("a", prompt="poem"), each)


def test_vectors_too_large_for_a_finite_score_are_a_fault_of_their_document():
    huge = np.full((1, 2), 3e38)
    asked = ScoreRequest(query="", query_vectors=huge, documents=[Document(vectors=huge), Document(vectors=-huge)])
    for score in TASK.join(asked, COLBERT, TASK.split(asked, COLBERT)).scores:
        assert (score.score, score.fault.code) == (None, "INVALID_INPUT")
