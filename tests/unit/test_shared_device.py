"""Several models on one device, event by event: pulls for all of them together, and when. No queue, no clock."""

import time

import pytest

from shoal.node.cost import Cost, Learner
from shoal.node.line import Known
from shoal.node.occupancy import Occupancy, Window
from shoal.node.peers import Peers
from shoal.node.scheduler import Scheduler
from shoal.node.settings import Settings
from shoal.protocol.facts import Profile
from shoal.protocol.status import LineStatus, ModelStatus, NodeStatus
from shoal.queue import Depth
from shoal.testing.effects import Recorded, answer, model, ticket

PROFILE = Profile(runtime="virtual", streams=1, batch_items=100, batch_tokens=1000)
NOW = time.time()
NAMES = ("a", "b", "c")


class World:
    """A node that holds three models on its one device, as another node does."""

    def __init__(self, others=1, held=NAMES) -> None:
        self.do = Recorded()
        self.peers = Peers("me")
        for number in range(others):
            models = {name: ModelStatus(state="ready") for name in NAMES}
            self.peers.told(NodeStatus(node=f"other-{number}", models=models), NOW + 1000)
        settings = Settings(memory_bytes=100_000, pinned=frozenset(held))
        self.scheduler = Scheduler(settings, self.do, self.peers)
        self.models = {name: model(name) for name in NAMES}
        for name in NAMES:
            self.scheduler.know(self.models[name], PROFILE, Known(footprint_bytes=4000, load_s=0.5), NOW)
            self.line(name).learner = Learner(Cost(a=0.01, b=0.0001, seen=1000))
        self.scheduler.tick(NOW)

    def line(self, name):
        return self.scheduler.lines[name]

    def load(self, *names):
        for name in names:
            self.scheduler.loaded(self.line(name).replicas[0].worker, PROFILE, 0.5, 4000, NOW)

    def arrive(self, name, *tickets, now=NOW):
        self.scheduler.pulled_any("cpu", name, tickets, now)

    def ticket(self, name, of, texts=1):
        return ticket(name, self.models[of], texts)

    def wanted(self):
        return [sorted(wanted) for _, wanted in self.do.pulls_any]


def shared() -> World:
    """All are loaded, and what was asked for each alone meanwhile has ended."""
    world = World()
    world.load(*NAMES)
    for name in NAMES:
        world.scheduler.pulled(name, [], NOW)
    assert world.do.pulled_anew == ["cpu", "cpu"], "of the first alone"
    world.arrive("")
    return world


def test_one_pull_at_a_time_is_for_all_models_of_the_device():
    world = shared()
    assert world.wanted()[-1] == ["a", "b", "c"]
    asked = len(world.do.pulls_any)
    world.scheduler.tick(NOW)
    world.scheduler.line_has_work("b", NOW)
    assert len(world.do.pulls_any) == asked


def test_nothing_is_asked_for_while_the_device_is_busy_with_another_of_them():
    world = shared()
    asked = len(world.do.pulls_any)
    world.arrive("b", world.ticket("1", "b", texts=50))
    assert len(world.do.pulls_any) == asked
    due_at = world.line("b").replicas[0].busy_with.due_at
    world.scheduler.tick(due_at / 2 + NOW / 2)
    assert len(world.do.pulls_any) == asked
    world.scheduler.tick(due_at)
    assert len(world.do.pulls_any) == asked + 1


def test_a_window_that_ends_sooner_than_predicted_is_followed_at_once():
    world = shared()
    asked = len(world.do.pulls_any)
    world.arrive("b", world.ticket("1", "b", texts=50))
    replica = world.line("b").replicas[0]
    world.scheduler.answered(replica.worker, answer(list(replica.flying), seen=1), NOW + 0.001)
    assert len(world.do.pulls_any) == asked + 1


def test_a_pull_that_brought_nothing_is_made_again():
    world = shared()
    asked = len(world.do.pulls_any)
    world.arrive("")
    assert len(world.do.pulls_any) == asked + 1


def test_a_model_that_joins_the_device_is_pulled_for_too():
    world = World()
    for name in NAMES:
        world.scheduler.pulled(name, [], NOW)  # while they are loaded each is asked for alone
    world.load("a", "b", "c")
    for name in ("a", "b"):
        world.scheduler.pulled(name, [], NOW)
    world.arrive("")
    assert world.wanted()[-1] == ["a", "b"]
    anew = len(world.do.pulled_anew)
    world.scheduler.pulled("c", [], NOW)
    assert world.do.pulled_anew[anew:] == ["cpu"]
    world.arrive("")
    assert world.wanted()[-1] == ["a", "b", "c"]


def test_a_job_of_a_model_that_is_gone_goes_back():
    world = shared()
    gone = world.ticket("1", "a")
    world.scheduler.lines.pop("a")
    asked = len(world.do.pulls_any)
    world.arrive("a", gone)
    assert gone.delivery.done == ["give back"]
    assert len(world.do.pulls_any) == asked + 1


def test_a_node_that_is_alone_asks_for_each_model_by_itself():
    world = World(others=0)
    world.load(*NAMES)
    assert world.do.pulls_any == []
    assert {name for name, _ in world.do.pulls} == set(NAMES)


def test_a_device_is_done_when_all_that_was_sent_to_it_is():
    device = Occupancy("cpu")
    first, second = Window(1, 2.0), Window(1, 3.0)
    device.sent(first, 10.0)
    device.sent(second, 11.0)
    assert device.due_at == 15.0
    device.ended(first, 11.5)
    assert device.due_at == 14.5
    device.ended(second, 12.0)
    assert device.due_at == 0.0


def test_a_window_that_is_called_back_shortens_what_comes_after_it_only():
    device = Occupancy("cpu")
    windows = [Window(1, 2.0), Window(1, 3.0), Window(1, 4.0)]
    for window in windows:
        device.sent(window, 10.0)
    device.ended(windows[1], 11.0)
    assert [window.due_at for window in (windows[0], windows[2])] == [12.0, 16.0]


# Models of others that wait too long.


def busy(name, share, waited=0.0):
    """A node that holds "a" and is busy for that share of its time."""
    lines = {"a": LineStatus(busy_share=share, wait_s=waited, items_per_s=1.0)}
    return NodeStatus(node=name, models={"a": ModelStatus(state="ready")}, lines=lines)


def world_beside(theirs, waited, ours=0.0):
    world = World(others=0, held=())
    for each in (busy("other", theirs, waited), NodeStatus(node="me", lines={"b": LineStatus(busy_share=ours)})):
        world.peers.told(each, NOW + 1000)
    return world


@pytest.mark.parametrize(
    ("theirs", "waited", "ours", "is_claimed"),
    [
        (0.95, 0.2, 0.0, True),
        (0.95, 0.2, 0.7, True),
        (0.95, 0.2, 0.9, False),  # we have no more time than they
        (0.95, 0.01, 0.0, False),  # nobody waits long
        (0.4, 0.2, 0.0, False),  # they will be done with it by themselves
    ],
)
def test_who_has_time_takes_up_a_model_whose_holders_have_none(theirs, waited, ours, is_claimed):
    world = world_beside(theirs, waited, ours)
    world.scheduler.line_has_work("a", NOW, Depth(1, 100, NOW))
    assert world.do.claims == (["a"] if is_claimed else [])


def test_such_models_are_taken_up_one_at_a_time():
    world = world_beside(0.95, 0.2)
    loaded = busy("other", 0.95, 0.2)
    both = dict.fromkeys(("a", "b"), loaded.lines["a"])
    models = {name: ModelStatus(state="ready") for name in ("a", "b")}
    world.peers.told(NodeStatus(node="other", models=models, lines=both), NOW + 1000)
    for name in ("a", "b"):
        world.scheduler.line_has_work(name, NOW, Depth(1, 100, NOW))
    assert world.do.claims == ["a"]
    world.scheduler.line_has_work("b", NOW + 1, Depth(1, 100, NOW))
    assert world.do.claims == ["a", "b"]


def test_of_cold_models_a_node_claims_the_next_one_later():
    """So that others come first, and models spread over the nodes."""
    world = World(others=0, held=())
    world.peers.told(NodeStatus(node="other"), NOW + 1000)
    for name in NAMES:
        world.scheduler.line_has_work(name, NOW, Depth(1, 100, NOW))
    assert world.do.claims == ["a"]
    world.scheduler.tick(max(world.do.wakes))
    assert world.do.claims == ["a", "b", "c"]
