"""Where adapters' factors stand among a stack's columns, and which texts share a pass."""

import random

import numpy as np

from shoal.families import Part
from shoal.protocol.tensors import Array
from shoal.runtimes.adapters import MOST_COLUMNS, passes
from shoal.runtimes.stack import COLUMNS, Held, Stack, arranged
from shoal.runtimes.terms import Place

QUERY, KEY, VALUE = Part("query", 0, 6), Part("key", 0, 6), Part("value", 0, 5)
PLACES = [Place((QUERY, KEY), width=4, of_texts=False), Place((VALUE,), width=6, of_texts=False)]
WIDTHS = {QUERY: 4, KEY: 4, VALUE: 6}
Pairs = dict[Part, tuple[Array, Array]]


def pairs(seed: int, rank: int, parts: tuple[Part, ...] = (QUERY, KEY, VALUE)) -> Pairs:
    chance = np.random.default_rng(seed)
    return {part: (chance.random((rank, WIDTHS[part])), chance.random((rank, part.rows))) for part in parts}


def new_stack() -> Stack:
    return Stack(PLACES, np.float64, lambda rows: rows)


def added(stack: Stack, adapters: list[Held], x: Array) -> Array:
    """What a graph adds for one token of each adapter at all places, from the stack's inputs."""
    owners, inputs = stack.arrange(adapters)
    own = np.arange(len(adapters))[:, None] == owners
    found = []
    for place in PLACES:
        a, b = (inputs[name].reshape(len(place.parts), len(owners), -1) for name in (place.a, place.b))
        found += [np.where(own, x[:, : place.width] @ a[i].T, 0) @ b[i] for i in range(len(place.parts))]
    return np.hstack(found)


def expected(factors: Pairs, x: Array) -> Array:
    found = []
    for part, width in WIDTHS.items():
        a, b = factors.get(part, (np.zeros((1, width)), np.zeros((1, part.rows))))
        found.append(x[:width] @ a.T @ b)
    return np.concatenate(found)


def test_each_adapter_adds_its_own_products_at_the_places_that_it_changes_and_nothing_elsewhere():
    chance, stack = random.Random(0), new_stack()
    many = [pairs(n, chance.choice([1, 3, 8, 16])) for n in range(20)]
    many += [pairs(n, 4, chance.choice([(VALUE,), (QUERY, VALUE), (KEY,)])) for n in range(20, 30)]
    held = [Held.of(f"adapter {n}", factors) for n, factors in enumerate(many)]
    for _ in range(200):
        some = chance.sample(range(len(many)), chance.randint(1, 8))
        x = np.random.default_rng(1).random((len(some), 6))
        found = added(stack, [held[n] for n in some], x)
        assert np.allclose(found, [expected(many[n], row) for n, row in zip(some, x, strict=True)])


def test_an_adapter_of_several_ranks_is_filled_up_with_nothing():
    uneven = pairs(1, 8) | pairs(2, 3, (VALUE,))
    held = Held.of("uneven", uneven)
    assert held.rank == 8
    assert held.size_bytes == sum(array.nbytes for pair in uneven.values() for array in pair)
    x = np.ones((1, 6))
    stack = new_stack()
    added(stack, [Held.of("before", pairs(3, 16))], x)
    assert np.allclose(added(stack, [held], x)[0], expected(uneven, x[0]))


def test_inputs_are_the_same_object_as_long_as_they_are_as_wide():
    stack, (one, other, third) = new_stack(), (Held.of(name, pairs(ord(name), COLUMNS[0] // 2)) for name in "abc")
    _, wide = stack.arrange([one, other, third])
    _, narrow = stack.arrange([one, other])
    assert narrow is not wide
    assert stack.arrange([other, third])[1] is narrow
    assert stack.arrange([third, one, other])[1] is wide


def test_what_stands_within_the_columns_stays_and_the_others_fill_the_gaps():
    standing = {"a": range(0, 8), "b": range(8, 16), "c": range(24, 32)}
    assert arranged(standing, {"b": 8, "d": 4, "e": 4}, 16) == {
        "b": range(8, 16),
        "d": range(0, 4),
        "e": range(4, 8),
    }
    assert arranged(standing, {"c": 8, "d": 8}, 16) == {"c": range(0, 8), "d": range(8, 16)}
    assert arranged(standing, {"a": 8, "c": 8}, 32) == {"a": range(0, 8), "c": range(24, 32)}


def test_where_no_gap_is_wide_enough_all_are_put_down_anew():
    standing = {"a": range(4, 8), "b": range(12, 16)}
    assert arranged(standing, {"a": 4, "b": 4, "c": 8}, 16) == {
        "c": range(0, 8),
        "a": range(8, 12),
        "b": range(12, 16),
    }


def test_places_never_overlap_and_always_fit():
    chance = random.Random(1)
    standing: dict[str, range] = {}
    for _ in range(500):
        wanted = {str(n): chance.choice([1, 4, 8, 16]) for n in chance.sample(range(30), chance.randint(1, 8))}
        columns = next(size for size in COLUMNS if size >= sum(wanted.values()))
        standing = arranged(
            {name: at for name, at in standing.items() if len(at) == wanted.get(name)}, wanted, columns
        )
        taken = [column for place in standing.values() for column in place]
        assert len(taken) == len(set(taken)) == sum(wanted.values())
        assert max(taken) < columns
        assert {name: len(place) for name, place in standing.items()} == wanted


def test_a_batch_is_one_pass_while_its_ranks_fit_and_otherwise_each_adapter_is_in_one_pass():
    named = ["a", "", "b", "a"]
    assert passes(named, {"a": 8, "b": MOST_COLUMNS - 8}) == [[0, 1, 2, 3]]
    assert passes(named, {"a": 16, "b": MOST_COLUMNS}) == [[1, 0, 3], [2]]
    assert passes(["a"], {"a": 2 * MOST_COLUMNS}) == [[0]]
    many = [f"{n % 40:02}" for n in range(90)]
    parts = passes(many, dict.fromkeys(many, 8))
    assert sorted(place for part in parts for place in part) == list(range(90))
    assert [len({many[place] for place in part}) for part in parts] == [16, 16, 8]
