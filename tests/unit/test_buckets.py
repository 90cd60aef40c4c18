"""How a micro-batch is laid out: few shapes, and padding that nothing looks at."""

import random
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from shoal.families import Prepared
from shoal.families.weights import Checkpoint
from shoal.lab import mixes
from shoal.protocol.facts import Profile
from shoal.protocol.items import Item
from shoal.runtimes import microbatch
from shoal.runtimes.buckets import FEW, FEWER, FINE, Packed, Rounding, pack

lengths_of_batches = st.lists(st.integers(1, 80), min_size=1, max_size=40)


def packed(lengths: list[int]) -> Packed:
    return pack([Prepared(Item(), [100 * i + j for j in range(n)], [i % 2] * n) for i, n in enumerate(lengths)])


@given(lengths_of_batches)
def test_every_token_stands_where_it_is_said_to(lengths):
    p = packed(lengths)
    laid_out = p.ids[p.gather]
    for i, n in enumerate(lengths):
        assert laid_out[i, :n].tolist() == [100 * i + j for j in range(n)]
        assert p.positions[p.gather][i, :n].tolist() == list(range(n))
        assert set(p.segments[p.gather][i, :n].tolist()) == {i % 2}
        assert p.mask[i].tolist() == [1] * n + [0] * (p.mask.shape[1] - n)
        assert p.ids[p.firsts[i]] == 100 * i


@given(lengths_of_batches)
def test_what_was_laid_out_can_be_packed_again(lengths):
    p = packed(lengths)
    again = p.ids[p.gather].reshape(-1)[p.scatter]
    assert again[: sum(lengths)].tolist() == p.ids[: sum(lengths)].tolist()


@given(lengths_of_batches)
def test_shapes_are_few_and_every_text_has_a_token_to_look_at(lengths):
    p = packed(lengths)
    texts, length = p.gather.shape
    assert p.tokens % 16 == 0
    assert length % 8 == 0
    assert texts in {*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 40}
    assert p.mask.sum(axis=1).min() >= 1
    assert (p.tokens - sum(lengths), length - max(lengths)) < (16, 8)
    assert texts <= 1.25 * len(lengths)


def text(tokens: int) -> Prepared:
    return Prepared(Item(), [1] * tokens, [0] * tokens)


def test_where_a_number_of_tokens_costs_an_engine_memory_there_are_fewer_of_them():
    def numbers(rounding: Rounding) -> set[int]:
        return {pack([text(n)], rounding).tokens for n in range(1, 385)}

    assert len(numbers(FINE)) == 24
    assert numbers(FEW) == {16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 288, 320, 352, 384}
    assert numbers(FEWER) == {64, 128, 256, 320, 352, 384}


def test_an_engine_that_keeps_kernels_has_those_of_nearly_every_batch():
    """Two products of attention for each number of texts and their length, four of a layer for one of tokens."""
    from shoal.runtimes.openvino_graph import KERNELS_KEPT

    rng, profile = random.Random(0), Profile(runtime="openvino")
    pairs: Counter[tuple[int, ...]] = Counter()
    tokens: Counter[int] = Counter()
    for _ in range(1500):
        lengths = [mixes.lognormal(rng) for _ in range(rng.randint(1, 32))]
        for piece in microbatch.cut(lengths, rng.randint(1, 2), profile):
            p = pack([text(lengths[i]) for i in piece], FEW)
            pairs[p.gather.shape] += 1
            tokens[p.tokens] += 1
    assert sum(count for _, count in pairs.most_common(KERNELS_KEPT // 2)) > 0.98 * pairs.total()
    assert 4 * len(tokens) <= KERNELS_KEPT


@given(lengths_of_batches, st.sampled_from([FINE, FEW, FEWER]))
def test_nothing_is_lost_however_coarsely_it_is_rounded(lengths, rounding):
    p = pack([text(n) for n in lengths], rounding)
    assert p.tokens >= sum(lengths)
    assert p.mask.sum(axis=1).tolist() == [*lengths, *[1] * (len(p.mask) - len(lengths))]
    assert p.ids.sum() == sum(lengths)


def test_a_table_is_looked_up_by_token_id_and_anything_else_is_passed_on(tmp_path):
    p = packed([2, 1])
    save_file({"words": np.arange(400, dtype=np.float32).reshape(200, 2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    table = Checkpoint(tmp_path).table("words", 200, 2)
    rows, mask = p.feed(["rows0", "mask"], {"rows0": table})
    assert rows[:3].tolist() == [[0, 1], [2, 3], [200, 201]]
    assert mask is p.mask


def test_tokens_that_none_may_look_at_have_their_rows_but_are_not_in_the_mask():
    texts = [(5, 2), (3, 0), (4, 3)] + [(1, 0)] * 6  # laid out as ten
    p = pack([Prepared(Item(), list(range(10, 10 + n)), [0] * n, unseen=unseen) for n, unseen in texts])
    assert p.mask[:3, :6].tolist() == [[1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0]]
    assert p.mask[3:, :6].tolist() == [[1] + [0] * 5] * 7
    assert p.ids[p.gather][0, :5].tolist() == [10, 11, 12, 13, 14]
    assert p.ids[p.lasts[:3]].tolist() == [12, 12, 10]


def test_tokens_are_numbered_from_1_and_padding_is_0():
    assert packed([3, 1]).ordinals[:, :4].tolist() == [[1, 2, 3, 0], [1, 0, 0, 0]]
