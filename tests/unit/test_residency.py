"""Who may stay in memory when another wants in."""

from shoal.node.residency import MIN_RESIDENCY_S, Plan, Resident, plan

NOW = 1000.0


def resident(name, size=40, busy=False, pinned=False, loaded=0.0, used=0.0, reload=1.0) -> Resident:
    return Resident(name, size, busy, pinned, loaded, used, reload)


def test_what_fits_is_loaded_and_nobody_goes():
    assert plan(20, 100, [resident("a"), resident("b")], NOW) == Plan("load")


def test_the_least_lately_used_of_equals_goes():
    residents = [resident("old", used=NOW - 500), resident("new", used=NOW - 1)]
    assert plan(40, 100, residents, NOW) == Plan("load", ("old",))


def test_what_is_cheap_to_load_again_per_byte_goes_before_what_is_dear():
    residents = [resident("dear", reload=30.0, used=NOW - 9), resident("cheap", reload=0.5, used=NOW - 9)]
    assert plan(40, 100, residents, NOW).evict == ("cheap",)


def test_as_few_go_as_needed():
    residents = [resident(name, size=30, used=NOW - age) for name, age in (("a", 30), ("b", 20), ("c", 10))]
    assert plan(35, 100, residents, NOW).evict == ("a",)
    assert plan(65, 100, residents, NOW).evict == ("a", "b")


def test_busy_and_pinned_models_stay():
    residents = [resident("busy", busy=True), resident("pinned", pinned=True)]
    assert plan(40, 100, residents, NOW) == Plan("wait")


def test_a_model_just_loaded_stays_for_a_while_and_the_plan_says_until_when():
    residents = [resident("young", size=80, loaded=NOW - 1)]
    assert plan(40, 100, residents, NOW) == Plan("wait", until=NOW - 1 + MIN_RESIDENCY_S)
    assert plan(40, 100, residents, NOW + MIN_RESIDENCY_S).evict == ("young",)


def test_what_can_never_fit_beside_the_pinned_is_refused():
    assert plan(70, 100, [resident("pinned", pinned=True)], NOW) == Plan("refuse")
    assert plan(101, 100, [], NOW) == Plan("refuse")


def test_over_budget_with_nothing_wanted_evicts_until_it_fits():
    residents = [resident("a", size=70, used=NOW - 50), resident("b", size=70, used=NOW - 5)]
    assert plan(0, 100, residents, NOW).evict == ("a",)
