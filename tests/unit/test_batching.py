"""How much goes to a runtime, and when; how a runtime cuts it; what it is predicted to cost."""

import random

import pytest

from shoal.node.batching import APART_S, MOST_APART_S, Decision, Load, next_window, share
from shoal.node.cost import Cost, Learner
from shoal.protocol.facts import Profile
from shoal.runtimes import microbatch


def load(items=0, tokens=None, backlog=0.0, linger=0.0, sent=0.0, due=0.0) -> Load:
    return Load(
        streams=2, batch_items=32, batch_tokens=384, backlog=backlog, waiting_items=items,
        waiting_tokens=items * 12 if tokens is None else tokens, linger_until=linger, sent_at=sent,
        due_at=due,
    )  # fmt: skip


def test_nothing_waits_nothing_is_sent():
    assert next_window(load(), 0.0) == Decision()


def test_idle_streams_take_what_is_there():
    assert next_window(load(items=1), 0.0).batches > 0


def test_the_runtime_has_a_micro_batch_for_each_stream_to_choose_from_besides_those_that_run():
    assert next_window(load(items=100), 0.0) == Decision(batches=4)
    assert next_window(load(items=100, backlog=2), 0.0) == Decision(batches=2)
    assert next_window(load(items=1000, backlog=3.5), 0.0) == Decision(batches=0.5)
    assert next_window(load(items=1000, backlog=4), 0.0) == Decision()


def test_a_thin_window_goes_ahead_of_need_but_not_text_by_text():
    assert next_window(load(items=5, backlog=2, sent=9.0), 10.0).batches == 2
    assert next_window(load(items=5, backlog=2, sent=9.999), 10.0) == Decision(wait_until=9.999 + APART_S)


def test_the_longer_a_runtime_is_busy_the_rarer_are_thin_windows():
    waits = [
        next_window(load(items=5, backlog=2, sent=10.0, due=10.0 + busy), 10.0).wait_until
        for busy in (0.004, 0.02, 9)
    ]
    assert waits == pytest.approx([10.0 + APART_S, 10.005, 10.0 + MOST_APART_S])
    assert next_window(load(items=5, backlog=2, sent=9.99, due=19.0), 10.0).batches == 2


def test_a_few_long_texts_count_as_a_full_micro_batch():
    assert next_window(load(items=2, tokens=500, backlog=2, sent=10.0), 10.0) == Decision(batches=2)


def test_a_thin_window_lingers_after_a_burst_and_a_full_one_does_not():
    assert next_window(load(items=3, linger=10.0), 9.9995) == Decision(wait_until=10.0)
    assert next_window(load(items=3, linger=10.0), 10.0).batches > 0
    assert next_window(load(items=32, linger=10.0), 9.9995).batches > 0


def test_devices_that_are_equally_free_share_what_waits():
    assert share(100, 1200.0, 4) == (25, 300)
    assert share(1, 12.0, 4) == (1, 3)


def pieces(lengths, pieces=2, square_price=0.0015):
    return microbatch.cut(lengths, pieces, Profile(runtime="any", square_price=square_price))


def test_every_item_is_in_exactly_one_micro_batch_and_caps_hold():
    rng = random.Random(7)
    for _ in range(300):
        lengths = [min(512, int(rng.lognormvariate(3.4, 1.0)) + 1) for _ in range(rng.randint(1, 130))]
        cuts = pieces(lengths, pieces=rng.randint(1, 4))
        assert sorted(index for cut in cuts for index in cut) == list(range(len(lengths)))
        for cut in cuts:
            assert len(cut) <= 32
            assert len(cut) == 1 or sum(lengths[index] for index in cut) <= 384


def test_the_oldest_item_is_in_the_first_micro_batch():
    assert 0 in pieces([500, 3, 3, 3, 3, 3])[0]
    assert 0 in pieces([3, 500, 400, 300])[0]


def test_a_request_of_many_texts_is_cut_over_both_streams_in_equal_shares():
    cuts = pieces([10] * 32)
    assert [len(cut) for cut in cuts] == [16, 16]


def test_texts_alike_in_length_stay_together():
    lengths = [5, 200, 6, 190, 5, 180]
    assert sorted(sorted(cut) for cut in pieces(lengths, pieces=1)) == [[0, 2, 4], [1], [3, 5]]


def test_a_long_text_is_not_padded_to_by_short_ones_unless_attention_needs_no_padding():
    lengths = [10, 250, 10, 10]
    assert sorted(len(cut) for cut in pieces(lengths, pieces=1)) == [1, 3]
    assert [len(cut) for cut in pieces(lengths, pieces=1, square_price=0.0)] == [4]


def test_one_item_makes_one_micro_batch_however_many_streams_are_idle():
    assert pieces([7], pieces=4) == [[0]]
    assert pieces([], pieces=4) == []


@pytest.mark.parametrize("true", [Cost(0.002, 5e-5, 1e-8), Cost(0.0005, 1e-6, 0.0), Cost(0.02, 1e-4, 1e-7)])
def test_the_cost_of_a_batch_is_learned_from_measured_ones(true):
    rng = random.Random(3)
    learner = Learner()
    for _ in range(400):
        lengths = [rng.randint(3, 250) for _ in range(rng.randint(1, 32))]
        tokens, square = sum(lengths), sum(length**2 for length in lengths)
        learner.learn(tokens, square, true.seconds(tokens, square) * rng.uniform(0.95, 1.05))
    for tokens, square in ((12, 144), (384, 384 * 12), (384, 384 * 200)):
        assert learner.cost.seconds(tokens, square) == pytest.approx(true.seconds(tokens, square), rel=0.12)


def test_a_learned_price_is_never_negative_and_nonsense_teaches_nothing():
    learner = Learner()
    for tokens in (10, 100, 400):
        learner.learn(tokens, tokens, 0.01 - tokens * 1e-5)  # bigger is cheaper: noise
    assert min(learner.cost.a, learner.cost.b, learner.cost.c) >= 0
    before = learner.cost
    learner.learn(0, 0, 1.0)
    learner.learn(10, 100, 0.0)
    assert learner.cost == before


def test_what_was_learned_before_is_where_learning_goes_on():
    known = Cost(0.004, 2e-5, 0.0, seen=1000)
    learner = Learner(known)
    for _ in range(17):
        learner.learn(100, 1000, known.seconds(100, 1000))
    assert learner.cost.seconds(300, 3000) == pytest.approx(known.seconds(300, 3000), rel=0.1)
    assert learner.cost.seen == 1017


def test_texts_padded_alike_are_cut_by_adapter_and_lengths_stay_apart():
    chance = random.Random(3)
    lengths = [chance.choice([*range(9, 17), *range(90, 97)]) for _ in range(96)]
    adapters = [f"adapter {chance.randrange(16)}" for _ in lengths]
    profile = Profile(runtime="any", square_price=0.0015)
    by_adapter, plain = (microbatch.cut(lengths, 2, profile, given) for given in (adapters, None))
    assert sorted(index for cut in by_adapter for index in cut) == list(range(96))

    def several(cuts: list[list[int]]) -> float:
        return sum(len({adapters[index] for index in cut}) / len(cut) for cut in cuts)

    assert several(by_adapter) < 0.8 * several(plain)
    assert all(len({lengths[index] > 16 for index in cut}) == 1 for cut in by_adapter)
    assert microbatch.cut(lengths, 2, profile, ["one"] * 96) == plain
