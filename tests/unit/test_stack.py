"""Where adapters' factors stand among a stack's columns, and which texts share a pass."""

import random

import numpy as np

from shoal.families import Part
from shoal.runtimes.adapters import MOST_COLUMNS, passes
from shoal.runtimes.stack import COLUMNS, Held, Stack, arranged
from shoal.runtimes.terms import Place

QUERY, VALUE = Part("query", 0, 6), Part("value", 0, 5)
PLACES = [Place(part, width=4, of_texts=False) for part in (QUERY, VALUE)]


def adapter(name: str, rank: int, parts: tuple[Part, ...] = (QUERY, VALUE)) -> Held:
    chance = np.random.default_rng(len(name) + rank)
    factors = {part: (chance.random((rank, 4)), chance.random((rank, part.rows))) for part in parts}
    return Held(name, rank, 0, factors)


def added(stack: Stack, adapters: list[Held], x: np.ndarray) -> np.ndarray:
    """What a graph adds for one token of each adapter at all places, from the stack's inputs."""
    owners, inputs = stack.arrange(adapters)
    own = np.arange(len(adapters))[:, None] == owners
    return np.hstack([np.where(own, x @ inputs[place.a].T, 0) @ inputs[place.b] for place in PLACES])


def expected(held: Held, x: np.ndarray) -> np.ndarray:
    nothing = np.zeros((1, 4)), np.zeros((1, 6))
    found = []
    for part in (QUERY, VALUE):
        a, b = held.factors.get(part, nothing)
        found.append(a @ x @ b[:, : part.rows])
    return np.concatenate(found)


def test_each_adapter_adds_its_own_products_at_the_places_that_it_changes_and_nothing_elsewhere():
    chance, stack = random.Random(0), Stack(PLACES, np.float64, lambda rows: rows)
    many = [adapter(f"adapter {n}", chance.choice([1, 3, 8, 16])) for n in range(20)]
    many += [adapter(f"value only {n}", 4, (VALUE,)) for n in range(5)]
    for _ in range(200):
        some = chance.sample(many, chance.randint(1, 6))
        x = np.random.default_rng(1).random((len(some), 4))
        assert np.allclose(added(stack, some, x), [expected(held, row) for held, row in zip(some, x, strict=True)])


def test_an_adapter_of_several_ranks_is_filled_up_with_nothing():
    held = adapter("uneven", 8)
    held.factors[VALUE] = tuple(array[:3] for array in held.factors[VALUE])
    x = np.ones((1, 4))
    stack = Stack(PLACES, np.float64, lambda rows: rows)
    added(stack, [adapter("before", 16)], x)
    assert np.allclose(added(stack, [held], x)[0], expected(held, x[0]))


def test_inputs_are_the_same_object_as_long_as_they_are_as_wide():
    stack, (one, other, third) = Stack(PLACES, np.float64, lambda rows: rows), (adapter(name, 8) for name in "abc")
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
    assert [len({many[place] for place in part}) for part in parts] == [8] * 5
