"""LoRA adapters at a node: which replica takes which, what waits for it, what goes. No process, no sleep."""

import time

import pytest

from shoal.node import adapters
from shoal.node.adapters import MAX_WAIT_S, MIN_RESIDENCY_S, Shelf, plan
from shoal.node.cost import Cost
from shoal.node.line import Known
from shoal.node.scheduler import Scheduler
from shoal.node.settings import Settings
from shoal.node.taking import FAILED_FOR_S, MAX_DEATHS, SHORTAGE_S, TAKE_WITHIN_S
from shoal.protocol.errors import ModelLoadFailed, ModelNotFound, ResourceExhausted
from shoal.protocol.facts import Profile
from shoal.testing.effects import Recorded, answer, model, ticket

PROFILE = Profile(runtime="virtual", streams=2, batch_items=4, batch_tokens=400)
NOW = time.time()
MB = 1_000_000


class World:
    """One base, ready on each device, and adapters of it."""

    def __init__(self, devices=1, budget=100 * MB, sizes=None, cost=None) -> None:
        self.do = Recorded()
        self.now = NOW
        names = tuple(f"virtual:{n}" for n in range(devices))
        settings = Settings(memory_bytes=10**9, adapter_bytes=budget, devices=names, pinned=frozenset({"base"}))
        self.scheduler = Scheduler(settings, self.do)
        self.base = model("base")
        self.scheduler.know(self.base, PROFILE, Known(footprint_bytes=4000, cost=cost or Cost()), self.now)
        self.adapters = {
            name: model(name, size, base="base") for name, size in (sizes or {"a": MB, "b": MB, "c": MB}).items()
        }
        while len(self.line.ready) < devices:
            self.scheduler.check(self.now)
            self.scheduler.loaded(self.line.replicas[-1].worker, PROFILE, 0.5, 4000, self.now)
        self.workers = [replica.worker for replica in self.line.replicas]

    @property
    def line(self):
        return self.scheduler.lines["base"]

    def shelf(self, worker=None):
        return self.scheduler.workers[worker or self.workers[0]].shelf

    def ask(self, name, adapter="", texts=1, **more):
        asked = ticket(name, self.base, texts, adapter=self.adapters.get(adapter), **more)
        self.scheduler.pulled("base", [asked], self.now)
        return asked

    def take(self, adapter, worker=None, size=None):
        digest = self.adapters[adapter].digest
        self.scheduler.taking.took(worker or self.workers[0], digest, size or MB, self.now)

    def fail(self, adapter, error, worker=None):
        self.scheduler.taking.failed(worker or self.workers[0], self.adapters[adapter].digest, error, self.now)

    def answer_all(self, worker=None):
        worker = worker or self.workers[0]
        windows = self.do.sent.get(worker, [])
        flying = self.scheduler.workers[worker].flying
        keys = [key for keys, _ in windows for key in keys if key in flying]
        self.scheduler.answered(worker, answer(keys, seen=len(windows)), self.now)

    def sent(self, worker=None):
        """The adapters of what was sent, item by item."""
        return [item.adapter for _, items in self.do.sent.get(worker or self.workers[0], []) for item in items]

    def later(self, seconds):
        self.now += seconds
        self.scheduler.tick(self.now)

    @property
    def finished(self):
        return [done.id for done in self.do.finished]

    @property
    def refused(self):
        return {name: type(error) for name, error in self.do.refused}


def test_what_needs_an_adapter_waits_until_it_was_taken_and_is_computed_with_it():
    world = World()
    world.ask("1", "a")
    assert world.do.taken == [(1, "of a")]
    assert world.sent() == []
    world.take("a")
    assert world.sent() == ["of a"]
    world.answer_all()
    assert world.finished == ["1"]


def test_an_adapter_is_taken_once_for_all_who_wait_for_it_and_outlives_who_asked():
    world = World()
    for name in "123":
        world.ask(name, "a")
    assert world.do.taken == [(1, "of a")]
    for name in "123":
        world.scheduler.cancelled(name, world.now)
    world.take("a")
    world.ask("4", "a")
    assert world.do.taken == [(1, "of a")]
    assert world.sent() == ["of a"]


def test_base_traffic_neither_waits_for_an_adapter_nor_is_asked_for_less_because_some_wait():
    world = World()
    pulls = len(world.do.pulls)
    for name in range(100):
        world.ask(f"waiting {name}", "a")
    assert [jobs for _, jobs in world.do.pulls[pulls:]] == [PROFILE.streams * PROFILE.batch_items] * 100
    world.ask("base")
    assert world.sent() == [""]
    world.answer_all()
    assert world.finished == ["base"]


def test_items_of_several_adapters_and_of_none_share_a_window():
    world = World()
    for name in "ab":
        world.ask(f"first of {name}", name)
        world.take(name)
    world.answer_all()
    world.later(1)
    world.ask("slow", texts=16)
    windows = len(world.do.sent[1])
    for name, adapter in (("1", "a"), ("2", "b"), ("3", "")):
        world.ask(name, adapter)
    world.answer_all()
    world.later(1)
    (_, items) = world.do.sent[1][windows]
    assert {item.adapter for item in items} == {"of a", "of b", ""}


def test_an_adapter_that_cannot_be_had_is_refused_with_the_reason_and_remembered_and_the_rest_goes_on():
    world = World()
    world.ask("1", "a")
    world.ask("2", "a")
    world.fail("a", ModelLoadFailed("lora_A has NaN"))
    ((_, error), _) = world.do.refused
    assert (error.code, "a cannot be used: lora_A has NaN" in error.message) == ("MODEL_LOAD_FAILED", True)
    assert error.detail["permanent"]
    world.ask("3", "a")
    assert set(world.refused) == {"1", "2", "3"}
    assert world.do.taken == [(1, "of a")]
    world.ask("base")
    world.ask("other", "b")
    world.take("b")
    world.answer_all()
    assert sorted(world.finished) == ["base", "other"]
    world.later(FAILED_FOR_S + 1)
    world.ask("4", "a")
    assert world.do.taken[-1] == (1, "of a")


def test_a_shortage_is_remembered_for_a_moment_only():
    world = World()
    world.ask("1", "a")
    world.fail("a", ResourceExhausted("no memory"))
    assert world.refused == {"1": ResourceExhausted}
    world.later(SHORTAGE_S + 0.1)
    world.ask("2", "a")
    assert len(world.do.taken) == 2


def test_the_least_recently_used_idle_adapter_goes_when_another_wants_in():
    world = World(budget=2 * MB)
    for name in "ab":
        world.ask(f"of {name}", name)
        world.take(name)
        world.answer_all()
        world.later(MIN_RESIDENCY_S)
    world.ask("again", "a")
    world.answer_all()
    world.ask("of c", "c")
    assert world.do.let_go == [(1, "of b")]
    assert world.do.taken[-1] == (1, "of c")


def test_an_adapter_with_items_in_flight_stays_until_they_are_back():
    world = World(budget=MB)
    world.ask("1", "a")
    world.take("a")
    world.later(MIN_RESIDENCY_S)
    world.ask("2", "b")
    assert world.do.let_go == []
    world.answer_all()
    assert world.do.let_go == [(1, "of a")]
    assert world.do.taken[-1] == (1, "of b")


def test_who_waited_long_gets_the_place_of_adapters_that_are_never_idle_and_they_come_back():
    world = World(budget=MB)
    world.ask("busy", "a", texts=1000)
    world.take("a")
    world.ask("patient", "b")
    world.later(MAX_WAIT_S + 0.1)
    before = len(world.sent())
    world.answer_all()
    assert len(world.sent()) == before, "a closed adapter gets no more windows"
    assert (world.do.let_go, world.do.taken[-1]) == ([(1, "of a")], (1, "of b"))
    world.take("b")
    assert world.sent()[before:] == ["of b"]
    world.answer_all()
    world.later(MIN_RESIDENCY_S)
    assert world.do.taken[-1] == (1, "of a")
    world.take("a")
    while world.line.busy:
        world.answer_all()
        world.later(0.1)
    assert sorted(world.finished) == ["busy", "patient"]


def test_one_that_is_larger_than_all_may_be_is_refused_and_the_option_named():
    world = World(budget=MB, sizes={"a": 2 * MB, "b": 100})
    world.ask("1", "a")
    ((_, error),) = world.do.refused
    assert "--adapter-memory" in error.message
    assert world.do.taken == []
    world.ask("2", "b")
    world.take("b", size=3 * MB)  # larger than its files
    assert "--adapter-memory" in world.do.refused[-1][1].message
    assert world.do.let_go == [(1, "of b")]


def test_sixty_four_adapters_are_there_at_once():
    sizes = {f"n{n}": MB for n in range(65)}
    world = World(sizes=sizes, budget=64 * MB)
    for name in list(sizes)[:64]:
        world.ask(name, name)
        world.take(name)
    world.answer_all()
    world.later(MIN_RESIDENCY_S)
    for name in list(sizes)[:64]:
        world.ask(f"again {name}", name)
    assert (len(world.do.taken), world.do.let_go) == (64, [])
    while world.line.busy:
        world.answer_all()
        world.later(0.1)
    world.ask("one more", "n64")
    assert len(world.do.let_go) == 1


def test_the_death_of_a_runtime_forgets_its_adapters_and_what_was_in_flight_is_computed_with_its_own():
    world = World()
    world.ask("1", "a")
    world.take("a")
    world.ask("2")
    assert sorted(world.sent()) == ["", "of a"]
    world.scheduler.died(1, world.now)
    world.scheduler.loaded(2, PROFILE, 0.5, 4000, world.now)
    assert world.do.taken == [(1, "of a"), (2, "of a")]
    assert world.sent(2) == [""], "what waits for its adapter holds up nobody"
    world.answer_all(2)
    world.take("a", worker=2)
    assert world.sent(2) == ["", "of a"]
    world.answer_all(2)
    assert sorted(world.finished) == ["1", "2"]


def test_an_adapter_at_which_runtimes_die_is_refused_and_the_base_lives():
    world = World()
    world.ask("1", "a")
    for worker in range(1, MAX_DEATHS + 1):
        assert world.do.taken[-1] == (worker, "of a")
        world.scheduler.died(worker, world.now)
        world.scheduler.loaded(worker + 1, PROFILE, 0.5, 4000, world.now)
    assert world.refused == {"1": ModelLoadFailed}
    world.ask("base")
    assert world.sent(MAX_DEATHS + 1) == [""]


def test_a_runtime_that_never_says_what_became_of_an_adapter_is_ended():
    world = World()
    world.ask("1", "a")
    world.now += TAKE_WITHIN_S + 1
    world.scheduler.check(world.now)
    assert world.do.killed == [], "its files may still be on their way"
    world.scheduler.taking.told(1, "of a", world.now)
    world.now += TAKE_WITHIN_S + 1
    world.scheduler.check(world.now)
    assert world.do.killed == [1]


def test_an_adapter_is_at_one_of_several_devices_until_what_waits_is_worth_another():
    world = World(devices=2, cost=Cost(a=0.01, b=0.001))
    world.ask("1", "a")
    world.take("a", worker=world.do.taken[0][0])
    assert len(world.do.taken) == 1
    holder, other = world.do.taken[0][0], ({*world.workers} - {world.do.taken[0][0]}).pop()
    assert world.sent(other) == []
    world.ask("base")
    assert world.sent(other) == [""]
    world.answer_all(other)
    world.ask("many", "a", texts=1000)
    assert world.do.taken[1:] == [(other, "of a")]
    world.take("a", worker=other)
    assert "of a" in world.sent(other)
    assert holder != other


def test_a_replaced_adapter_serves_what_is_new_and_ends_what_it_began():
    world = World()
    world.ask("begun", "a", texts=100)
    world.take("a")
    fresh = model("a", base="base")
    fresh = type(fresh)(card=fresh.card, facts=fresh.facts, folder=fresh.folder, digest="new a", size_bytes=MB)
    world.ask("not begun", "a")
    world.scheduler.taking.replaced(world.adapters["a"], fresh, world.now)
    assert world.do.taken[-1] == (1, "new a")
    world.scheduler.taking.took(1, "new a", MB, world.now)
    while world.line.busy:
        world.answer_all()
        world.later(0.1)
    assert sorted(world.finished) == ["begun", "not begun"]
    assert world.sent().count("of a") == 100
    assert world.sent().count("new a") == 1


def test_a_removed_adapter_is_let_go_and_what_waits_for_it_is_told():
    world = World()
    world.ask("1", "a")
    world.scheduler.taking.replaced(world.adapters["a"], None, world.now)
    assert world.refused == {"1": ModelNotFound}
    world.take("a")
    world.scheduler.taking.replaced(world.adapters["a"], None, world.now)
    assert world.do.let_go == [(1, "of a")]


def test_a_cold_base_is_loaded_for_what_needs_an_adapter():
    do = Recorded()
    scheduler = Scheduler(Settings(memory_bytes=10**9), do)
    scheduler.know(model("base"), PROFILE, Known(footprint_bytes=4000), NOW)
    scheduler.pulled("base", [ticket("1", model("base"), adapter=model("a", base="base"))], NOW)
    assert (do.launched, do.taken) == (["base"], [])
    scheduler.loaded(1, PROFILE, 0.5, 4000, NOW)
    assert do.taken == [(1, "of a")]


# The plan alone.


def shelf(**held):
    made = Shelf()
    for name, (size, taken_at, used) in held.items():
        made.held[name] = adapters.Held(name, size, taken_at, used)
    return made


@pytest.mark.parametrize(
    ("size", "flying", "wanted", "waited", "expected"),
    [
        (11, "", "", 0, ("refuse", (), ())),
        (2, "", "", 0, ("take", (), ())),
        (4, "", "", 0, ("take", ("old",), ())),
        (7, "", "", 0, ("take", ("old", "used"), ())),
        (4, "old", "", 0, ("take", ("used",), ())),
        (4, "", "old", 0, ("take", ("used",), ())),
        (10, "", "", 0, ("wait", (), ())),
        (4, "old", "used", 0, ("wait", (), ())),
        (4, "old", "used", MAX_WAIT_S, ("wait", (), ("old",))),
    ],
)
def test_room_is_made_by_those_not_used_for_longest_that_have_been_here_and_are_idle(
    size, flying, wanted, waited, expected
):
    here = shelf(used=(3, 0, 90), old=(3, -1, 50), young=(2, 100, 100))
    found = plan(size, 10, here, flying={flying}, wanted={wanted}, waited_s=waited, now=100 + MIN_RESIDENCY_S / 2)
    assert (found.verdict, found.drop, found.close) == expected
