"""Where adapters' factors stand among a stack's columns, and which texts share a pass."""

import random

import numpy as np

from shoal.families import Part
from shoal.runtimes.adapters import MOST_COLUMNS, passes
from shoal.runtimes.stack import COLUMNS, Held, Stack, arranged
from shoal.runtimes.terms import Place

QUERY, KEY, VALUE = (Part(name, 0, 6) for name in ("query", "key", "value"))
PLACE = Place(((QUERY, 0), (VALUE, 12)), width=4, rows=18, of_texts=False)


def adapter(name: str, rank: int, parts: tuple[Part, ...] = (QUERY, VALUE)) -> Held:
    chance = np.random.default_rng(len(name) + rank)
    factors = {part: (chance.random((rank, 4)), chance.random((rank, part.rows))) for part in parts}
    return Held(name, rank, 0, factors)


def added(stack: Stack, adapters: list[Held], x: np.ndarray) -> np.ndarray:
    """What a graph adds for one token of each adapter, from the stack's inputs."""
    owners, inputs = stack.arrange(adapters)
    own = np.arange(len(adapters))[:, None] == np.repeat(owners, len(PLACE.parts))
    return np.where(own, x @ inputs[PLACE.a].T, 0) @ inputs[PLACE.b]


def expected(held: Held, x: np.ndarray) -> np.ndarray:
    found = np.zeros(PLACE.rows)
    for part, start in PLACE.parts:
        if part in held.factors:
            a, b = held.factors[part]
            found[start : start + part.rows] += a @ x @ b
    return found


def test_each_adapter_adds_its_own_products_in_the_rows_of_the_parts_it_changes_and_nothing_elsewhere():
    chance, stack = random.Random(0), Stack([PLACE], np.float64, lambda rows: rows)
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
    stack = Stack([PLACE], np.float64, lambda rows: rows)
    added(stack, [adapter("before", 16)], x)
    assert np.allclose(added(stack, [held], x)[0], expected(held, x[0]))


def test_inputs_are_the_same_object_until_something_else_is_to_be_fed():
    stack, (one, other, third) = (
        Stack([PLACE], np.float64, lambda rows: rows),
        (adapter(name, 8) for name in "abc"),
    )
    _, first = stack.arrange([one, other])
    assert stack.arrange([other, one])[1] is first
    assert stack.arrange([other, third])[1] is first
    assert stack.arrange([one, other, third])[1] is not first


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
