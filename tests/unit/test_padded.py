"""Cutting for an engine that pads: against every possible cut, and within the caps."""

import itertools
import random

import pytest

from shoal.protocol.facts import Profile
from shoal.runtimes.microbatch import cut
from shoal.runtimes.padded import about

PROFILE = Profile(
    runtime="virtual", batch_items=8, batch_tokens=400, fixed_price=40, square_price=0, padding_price=1
)


def price(lengths: list[int], profile: Profile) -> float:
    return profile.fixed_price + len(lengths) * max(lengths)


def best_price(lengths: list[int], profile: Profile) -> float:
    """Over all ways to cut the sorted lengths."""
    ascending = sorted(lengths)
    prices = []
    for cuts in itertools.product([False, True], repeat=len(ascending) - 1):
        pieces = [[ascending[0]]]
        for length, is_cut in zip(ascending[1:], cuts, strict=True):
            if is_cut:
                pieces.append([])
            pieces[-1].append(length)
        if all(len(p) == 1 or (len(p) <= 8 and len(p) * max(p) <= 400) for p in pieces):
            prices.append(sum(price(piece, profile) for piece in pieces))
    return min(prices)


@pytest.mark.parametrize("seed", range(20))
def test_of_all_cuts_the_cheapest_is_made(seed):
    rng = random.Random(seed)
    lengths = [min(512, round(rng.lognormvariate(3.4, 1.1)) + 3) for _ in range(rng.randint(1, 11))]
    pieces = cut(lengths, 1, PROFILE)
    assert sorted(itertools.chain(*pieces)) == list(range(len(lengths)))
    assert 0 in pieces[0]
    found = sum(price([lengths[index] for index in piece], PROFILE) for piece in pieces)
    assert found == pytest.approx(best_price(lengths, PROFILE))


def test_of_many_items_every_micro_batch_keeps_to_the_caps():
    rng = random.Random(1)
    lengths = [min(512, round(rng.lognormvariate(3.4, 1.1)) + 3) for _ in range(3000)]
    pieces = cut(lengths, 1, PROFILE)
    assert sorted(itertools.chain(*pieces)) == list(range(3000))
    held = [[lengths[index] for index in piece] for piece in pieces]
    assert all(len(piece) == 1 or (len(piece) <= 8 and len(piece) * max(piece) <= 400) for piece in held)


@pytest.mark.parametrize("seed", range(10))
def test_what_a_window_will_take_is_told_without_cutting_it(seed):
    rng = random.Random(seed)
    wide = Profile(runtime="virtual", batch_items=512, batch_tokens=8192, fixed_price=450, padding_price=1)
    lengths = [min(512, round(rng.lognormvariate(3.4, 1.1)) + 3) for _ in range(rng.randint(1, 200))]
    batches, computed = about(lengths, wide)
    best = sum(wide.fixed_price + len(p) * max(lengths[i] for i in p) for p in cut(lengths, 1, wide))
    assert batches * wide.fixed_price + computed == pytest.approx(best, rel=0.15)


def test_nothing_takes_no_time():
    assert about([], PROFILE) == (0, 0.0)
