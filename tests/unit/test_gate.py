"""The gate's figures, on arrays whose answer is known."""

import json
from pathlib import Path

import numpy as np
import pytest

from shoal.lab import gate
from shoal.lab.gate_run import rounded_down
from shoal.lab.gate_texts import CANDIDATES, MOST_READ, Pair, make_trial, read_pairs
from shoal.protocol.errors import InvalidInput
from shoal.protocol.facts import Facts

RNG = np.random.default_rng(1)
ENCODER = Facts(tasks=("encode",), family="bert", files="safetensors", max_tokens=256)
SCORER = Facts(tasks=("score",), family="bert", files="safetensors", max_tokens=512)


def passed(part: gate.Part) -> bool:
    return all(figure.passed for figure in part.figures)


def turned(rows: np.ndarray, by: float) -> np.ndarray:
    """Each row at an angle whose cosine is `by`, longer by half."""
    side = RNG.normal(size=rows.shape)
    side -= rows * ((side * rows).sum(1) / (rows * rows).sum(1))[:, None]
    side *= (np.linalg.norm(rows, axis=1) / np.linalg.norm(side, axis=1))[:, None]
    return 1.5 * (by * rows + np.sqrt(1 - by**2) * side)


@pytest.mark.parametrize(("cosine", "is_good"), [(0.99995, True), (0.9998, False)])
def test_a_dense_vector_has_to_keep_its_direction_and_one_that_does_not_is_enough(cosine, is_good):
    exact = RNG.normal(size=(50, 32))
    found = exact.copy()
    found[7] = turned(exact[7:8], cosine)
    part = gate.dense(found, exact)
    assert passed(part) == is_good
    assert part.near == pytest.approx(cosine, abs=1e-7)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 0.0])
def test_a_vector_that_is_no_vector_is_as_far_away_as_can_be(wrong):
    exact = RNG.normal(size=(3, 8))
    found = exact.copy()
    found[1] = wrong
    part = gate.dense(found, exact)
    assert not passed(part)
    assert np.isfinite([figure.value for figure in part.figures]).all()


def test_two_empty_sparse_vectors_are_alike_and_one_alone_is_not():
    exact = np.zeros((2, 10))
    exact[0, :4] = 1
    assert passed(gate.sparse(exact.copy(), exact))
    assert not passed(gate.sparse(np.zeros((2, 10)), exact))


def test_of_sparse_vectors_the_heaviest_words_have_to_be_the_same():
    exact = np.zeros((1, 200))
    exact[0, :100] = np.linspace(1.0, 1.01, 100)
    found = exact.copy()
    found[0, :100] = exact[0, :100][::-1]  # almost the same direction, but the least are now the heaviest
    part = gate.sparse(found, exact)
    assert part.near > gate.SPARSE
    assert not passed(part)


def test_the_worst_token_of_any_text_counts():
    exact = [RNG.normal(size=(n, 16)) for n in (1, 40, 7)]
    found = [rows.copy() for rows in exact]
    assert passed(gate.tokens(found, exact))
    found[2][6] = turned(exact[2][6:7], 0.998)
    part = gate.tokens(found, exact)
    assert part.near == pytest.approx(0.998, abs=1e-6)
    assert not passed(part)


def test_scores_that_differ_by_less_than_a_hundredth_of_their_spread_may_swap_and_others_may_not():
    exact = [np.array([10.0, 5.0, 5.05, 0.0])]
    near, far = np.array([10.0, 5.04, 5.01, 0.0]), np.array([10.0, 5.0, 5.05, 5.02])
    assert passed(gate.scores([near], exact, alone=True))
    assert not passed(gate.scores([far], exact, alone=False))


def test_one_swap_in_a_thousand_pairs_is_allowed_and_two_are_not():
    exact = np.arange(46.0)  # 1035 pairs, neighbours 1/45 of the spread apart
    one, two = exact.copy(), exact.copy()
    one[[3, 4]] = one[[4, 3]]
    two[[3, 4, 8, 9]] = two[[4, 3, 9, 8]]
    assert passed(gate.scores([one], [exact], alone=False))
    assert not passed(gate.scores([two], [exact], alone=False))


def test_a_model_that_finds_all_documents_alike_is_allowed_less_noise():
    noise = RNG.normal(scale=0.003, size=(5, 40))
    wide, narrow = RNG.uniform(0, 10, size=(5, 40)), RNG.uniform(0, 0.03, size=(5, 40))
    assert passed(gate.scores(list(wide + noise), list(wide), alone=True))
    assert not passed(gate.scores(list(narrow + noise), list(narrow), alone=True))


def test_scores_that_all_move_together_keep_their_order_but_not_a_threshold():
    exact = [np.array([0.0, 1.0, 2.0]), np.array([3.0, 1.0, -1.0])]
    found = [scores + 1.0 for scores in exact]
    assert passed(gate.scores(found, exact, alone=False))
    assert not passed(gate.scores(found, exact, alone=True))


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_score_that_is_no_number_passes_nothing_and_can_be_written_down(wrong):
    exact = np.array([0.0, 1.0, 2.0])
    part = gate.scores([np.array([0.0, 1.0, wrong])], [exact], alone=True)
    assert not passed(part)
    assert part.near == 0.0
    assert np.isfinite([figure.value for figure in part.figures]).all()


def test_the_same_scores_pass_whatever_they_are():
    for exact in (np.array([1.0]), np.zeros(5), np.array([2.0, 1.0])):
        assert passed(gate.scores([exact.copy()], [exact], alone=True))


def test_labelled_answers_may_be_found_a_little_less_often():
    exact = [np.arange(12.0)[::-1] for _ in range(100)]  # the right one first each time
    missed = np.array([0.5, *range(1, 12)])  # it comes last of twelve: not among ten
    assert gate.ndcg(exact, exact).passed
    assert gate.ndcg([*exact[1:], exact[0]], exact).value == 0.0
    found = gate.ndcg([missed, *exact[1:]], exact)
    assert found.value == pytest.approx(0.01)
    assert not found.passed


def test_a_tolerance_is_never_better_than_what_was_measured():
    assert rounded_down(0.9999349) == 0.99993
    assert rounded_down(0.3) == 0.9


def test_a_trial_holds_one_word_and_more_than_the_model_reads_and_is_always_the_same():
    trial = make_trial(ENCODER)
    counts = [len(text.split()) for text in trial.documents]
    assert min(counts) == 1
    assert max(counts) > ENCODER.max_tokens
    assert any(not text.isascii() for text in trial.documents)
    assert trial == make_trial(ENCODER)
    assert trial.labelled == 0


def test_each_query_has_its_own_answer_first_and_no_document_twice():
    trial = make_trial(SCORER)
    for candidates in trial.candidates:
        assert len(set(candidates)) == len(candidates) == CANDIDATES
    assert "6:40" in trial.documents[trial.candidates[0][0]]


def test_a_users_pairs_come_first_and_a_cross_encoder_reads_some_of_them():
    pairs = [Pair(f"question {number}", f"answer {number}") for number in range(200)]
    trial = make_trial(SCORER, pairs)
    assert trial.labelled == MOST_READ
    number = trial.queries[0].removeprefix("question ")
    assert trial.documents[trial.candidates[0][0]] == f"answer {number}"
    assert make_trial(ENCODER, pairs).labelled == 200


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", ":2: "),
        ('{"query": "a"}', "document"),
        ('{"query": "", "document": "b"}', "query"),
        ("[]", ":2: "),
        ('{"query": "\udcff", "document": "b"}', ":2: "),
    ],
    ids=["no JSON", "no document", "an empty query", "no object", "no UTF-8"],
)
def test_a_line_that_is_no_pair_is_named(tmp_path: Path, line, said):
    path = tmp_path / "pairs.jsonl"
    good = json.dumps({"query": "a", "document": "b"})
    path.write_bytes(f"{good}\n{line}\n".encode(errors="surrogateescape"))
    with pytest.raises(InvalidInput, match=said):
        read_pairs(path)


def test_a_file_without_pairs_or_that_is_not_there_is_refused(tmp_path: Path):
    (tmp_path / "empty").write_text("\n\n")
    with pytest.raises(InvalidInput, match="holds no pairs"):
        read_pairs(tmp_path / "empty")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_pairs(tmp_path / "nowhere")
