"""What a node does in regard of others, event by event: pulls, give-backs, claims, parts. No queue, no clock."""

import time

import msgspec
import pytest

from shoal.catalog.shared import key_of
from shoal.node.cost import Cost, Learner
from shoal.node.line import Known
from shoal.node.neighbours import EARLIER, REFUSE_AFTER_S
from shoal.node.parting import HEARD_AFTER_S
from shoal.node.peers import Peers
from shoal.node.scheduler import Scheduler
from shoal.node.settings import Settings
from shoal.protocol.facts import Profile
from shoal.protocol.items import Output
from shoal.protocol.status import ModelStatus, NodeStatus
from shoal.queue import Depth
from shoal.testing.effects import Recorded, answer, model, ticket

PROFILE = Profile(runtime="virtual", streams=1, batch_items=100, batch_tokens=1000)
NOW = time.time()


class World:
    """A node that holds "a", among others."""

    def __init__(self, others="ready", count=2, pinned=("a",)) -> None:
        self.do = Recorded()
        self.now = NOW
        self.peers = Peers("me")
        for number in range(count):
            models = {"a": ModelStatus(state=others)}
            self.peers.told(NodeStatus(node=f"other-{number}", models=models), NOW + 1000)
        settings = Settings(memory_bytes=100_000, pinned=frozenset(pinned))
        self.scheduler = Scheduler(settings, self.do, self.peers)
        self.model = model("a")
        self.scheduler.know(self.model, PROFILE, Known(footprint_bytes=4000, load_s=0.5), NOW)
        self.line = self.scheduler.lines["a"]
        self.line.learner = Learner(Cost(a=0.01, b=0.0001, seen=1000))
        if pinned:
            self.scheduler.tick(NOW)
            self.load()

    def load(self):
        self.scheduler.loaded(self.line.replicas[0].worker, PROFILE, 0.5, 4000, self.now)

    def arrive(self, *tickets, waiting=0):
        self.scheduler.pulled("a", tickets, self.now, waiting)

    def ticket(self, name, texts=1):
        return ticket(name, self.model, texts)

    @property
    def running(self):
        return self.line.replicas[0].running


def test_an_idle_node_asks_at_once_and_a_busy_one_just_before_it_is_free():
    world = World()
    assert len(world.do.pulls) == 1
    world.arrive(world.ticket("1", texts=50))
    assert len(world.do.pulls) == 1
    assert world.do.wakes[-1] == pytest.approx(world.running.due_at - EARLIER * 0.1)
    world.scheduler.tick(world.do.wakes[-1])
    assert len(world.do.pulls) == 2


def test_a_node_that_is_alone_asks_early():
    world = World(count=0)
    world.arrive(world.ticket("1"))
    assert len(world.do.pulls) == 2


def test_what_was_sent_ahead_of_a_late_window_goes_back_if_another_node_waits():
    world = World()
    world.arrive(world.ticket("running"))
    world.now += 0.001
    world.arrive(world.ticket("ahead"))
    world.scheduler.tick(world.now + 0.002)
    late = world.running.due_at + 0.021
    world.scheduler.tick(late - 0.002)
    assert world.do.asked_waiting == []
    world.scheduler.tick(late)
    assert world.do.asked_waiting == ["a"]
    world.scheduler.others_wait("a", late)
    assert world.do.given_back == ["ahead"]
    assert len(world.do.cancelled) == 1
    assert list(world.scheduler.tickets) == ["running"]


def test_a_node_that_is_late_looks_again_and_again_whether_another_could_do_it():
    world = World()
    world.arrive(world.ticket("running"))
    world.now += 0.001
    world.arrive(world.ticket("ahead"))
    world.scheduler.tick(world.now + 0.002)
    now = world.running.due_at + 0.021
    for times in (1, 2, 3):
        world.scheduler.tick(now)
        assert len(world.do.asked_waiting) == times
        assert now < world.do.wakes[-1] <= now + 0.01
        now = world.do.wakes[-1]


def test_no_more_than_one_window_is_sent_ahead_of_one_that_is_overdue():
    world = World()
    world.arrive(world.ticket("running"))
    world.scheduler.tick(world.do.wakes[-1])
    world.now = world.running.due_at + 0.001
    world.arrive(world.ticket("ahead"))
    asked = len(world.do.pulls)
    replica = world.line.replicas[0]
    due_at = replica.busy_with.due_at
    world.scheduler.tick(due_at + 0.001)
    assert len(world.do.pulls) == asked
    first = [key for key, flight in replica.flying.items() if flight.ticket.id == "running"]
    world.scheduler.answered(replica.worker, answer(first, seen=2, backlog=1), due_at + 0.002)
    world.scheduler.tick(replica.busy_with.due_at)
    assert len(world.do.pulls) == asked + 1


def test_a_node_that_is_late_takes_nothing_more_until_it_answers():
    world = World()
    world.arrive(world.ticket("running"))
    asked = len(world.do.pulls)
    late = world.running.due_at + 1
    world.scheduler.line_has_work("a", late)
    assert len(world.do.pulls) == asked
    replica = world.line.replicas[0]
    world.scheduler.answered(replica.worker, answer(list(replica.flying), seen=1), late)
    assert len(world.do.pulls) == asked + 1


def test_a_job_that_is_begun_stays_however_late_its_window_is():
    world = World()
    world.arrive(world.ticket("running", texts=250))
    late = world.running.due_at + 10
    world.scheduler.others_wait("a", late)
    assert world.do.given_back == []


def test_nothing_goes_back_once_the_late_window_is_answered():
    world = World()
    world.arrive(world.ticket("running"))
    world.now += 0.003
    world.arrive(world.ticket("ahead"))
    late = world.running.due_at + 1
    replica = world.line.replicas[0]
    first = [key for key, flight in replica.flying.items() if flight.ticket.id == "running"]
    world.scheduler.answered(replica.worker, answer(first, seen=2, backlog=1), late)
    world.scheduler.others_wait("a", late)
    assert world.do.given_back == []


def test_nothing_is_asked_of_others_by_a_node_that_is_alone():
    world = World(count=0)
    world.arrive(world.ticket("running"), world.ticket("ahead"))
    world.scheduler.tick(NOW + 100)
    assert world.do.asked_waiting == []


def test_a_cold_line_that_nobody_holds_is_claimed_before_it_is_pulled_from_and_loaded():
    world = World(others="absent", pinned=())
    world.scheduler.line_has_work("a", NOW)
    assert (world.do.claims, world.do.pulls) == (["a"], [])
    world.scheduler.claimed("a", NOW)
    assert [line for line, _ in world.do.pulls] == ["a"]
    world.arrive(world.ticket("1"))
    assert world.do.launched == ["a"]
    assert world.do.released == []
    world.load()
    assert world.do.released == ["a"]


def test_a_claim_ends_when_there_was_nothing_to_compute():
    world = World(others="absent", pinned=())
    world.scheduler.line_has_work("a", NOW)
    world.scheduler.claimed("a", NOW)
    world.arrive()
    assert world.do.released == ["a"]
    assert world.do.launched == []


def test_a_line_that_another_claimed_is_left_to_it_until_the_claim_ends():
    world = World(others="absent", pinned=())
    world.peers.noted("claim/other-1/a", b'{"node":"other-1","at":%f,"until":%f}' % (NOW, NOW + 10))
    world.scheduler.line_has_work("a", NOW)
    assert world.do.claims == []
    world.scheduler.line_has_work("a", NOW + 11)
    assert world.do.claims == ["a"]


def test_a_line_that_others_hold_is_claimed_only_when_its_wait_is_worth_a_load():
    world = World(pinned=())
    world.scheduler.line_has_work("a", NOW)
    world.scheduler.line_has_work("a", NOW, Depth(jobs=2, size_bytes=200, oldest=NOW - 5))
    assert world.do.claims == []
    world.scheduler.line_has_work("a", NOW, Depth(jobs=900, size_bytes=300_000, oldest=NOW - 5))
    assert world.do.claims == ["a"]


def test_jobs_of_a_model_that_went_meanwhile_go_to_those_that_hold_it():
    world = World(pinned=())
    world.arrive(world.ticket("1"))
    assert world.do.given_back == ["1"]
    assert world.do.launched == []


def test_a_large_request_is_taken_apart_and_put_together_from_its_parts():
    world = World()
    job = world.ticket("large", texts=1000)
    world.arrive(job, waiting=2)
    given = [index for _, indices in world.do.shared for index in indices]
    assert len(world.do.shared) > 1
    for _, indices in world.do.shared:
        world.scheduler.part_answered(job, indices, [Output(tokens=3) for _ in indices], NOW)
    replica = world.line.replicas[0]
    while replica.flying:
        world.scheduler.answered(replica.worker, answer(list(replica.flying), seen=replica.windows), NOW)
    assert world.do.finished == [job]
    assert {index for index, output in enumerate(job.outputs) if output.tokens == 3} == set(given)


def test_a_part_that_is_lost_is_computed_here():
    world = World()
    job = world.ticket("large", texts=1000)
    world.arrive(job, waiting=2)
    for _, indices in world.do.shared:
        world.scheduler.part_lost(job, indices, NOW)
    replica = world.line.replicas[0]
    while replica.flying:
        world.scheduler.answered(replica.worker, answer(list(replica.flying), seen=replica.windows), NOW)
    assert world.do.finished == [job]


def test_a_part_is_never_taken_apart():
    world = World()
    job = world.ticket("part", texts=1000)
    job.envelope = msgspec.structs.replace(job.envelope, task="part")
    world.arrive(job, waiting=2)
    assert world.do.shared == []


def test_what_comes_back_of_a_cancelled_request_is_ignored():
    world = World()
    job = world.ticket("large", texts=1000)
    world.arrive(job, waiting=2)
    world.scheduler.cancelled("large", NOW)
    (_, first), (_, second) = world.do.shared[:2]
    world.scheduler.part_answered(job, first, [Output(tokens=3) for _ in first], NOW)
    world.scheduler.part_lost(job, second, NOW)
    assert world.do.dropped == ["large"]
    assert not world.line.waiting


def test_a_node_that_would_have_to_let_another_model_go_leaves_others_the_first_word():
    world = World(others="absent", pinned=())
    world.scheduler.know(model("b"), PROFILE, Known(footprint_bytes=98_000), NOW - 60)
    world.scheduler.claimed("b", NOW - 60)
    world.scheduler.pulled("b", [ticket("b", model("b"))], NOW - 60)
    world.scheduler.loaded(world.scheduler.lines["b"].replicas[0].worker, PROFILE, 0.5, 98_000, NOW - 60)
    replica = world.scheduler.lines["b"].replicas[0]
    world.scheduler.answered(replica.worker, answer(list(replica.flying), seen=1), NOW - 60)
    world.scheduler.line_has_work("a", NOW)
    assert world.do.claims == []
    world.scheduler.tick(world.do.wakes[-1])
    assert world.do.claims == ["a"]


def test_a_node_that_can_never_hold_a_model_leaves_it_to_others_for_long():
    world = World(others="absent", pinned=())
    world.line.known.footprint_bytes = 10**9
    world.scheduler.line_has_work("a", NOW)
    world.scheduler.line_has_work("a", NOW + 1)
    assert world.do.claims == []
    world.scheduler.line_has_work("a", NOW + REFUSE_AFTER_S)
    assert world.do.claims == ["a"]


@pytest.mark.parametrize("listening_s", [0.0, 1.0])
def test_a_node_that_just_came_or_came_back_takes_no_cold_line_before_it_could_hear_who_holds_it(listening_s):
    world = World(count=0, pinned=())
    world.peers._listening_s = lambda: listening_s
    waiting = Depth(jobs=1, size_bytes=100, oldest=world.now)
    world.scheduler.line_has_work("a", world.now, waiting)
    assert (world.do.pulls, world.do.launched, world.do.claims) == ([], [], [])
    world.peers.told(NodeStatus(node="other", models={"a": ModelStatus(state="ready")}), world.now)
    world.peers._listening_s = lambda: 2.0
    world.scheduler.line_has_work("a", world.now, waiting)
    assert (world.do.pulls, world.do.launched, world.do.claims) == ([], [], [])


class Removed(World):
    """Its model is gone, and three jobs wait for it: one that had been given back before, two that had not."""

    def __init__(self, others: bool) -> None:
        super().__init__()
        self.arrive(self.ticket("at work", texts=100))
        first, second, again = (self.ticket(name) for name in ("first", "second", "again"))
        again.delivery.is_again = True
        self.arrive(first, second, again)
        self.noted(b"ours")
        self.scheduler.forget("a", self.now)
        assert (self.given_back(), self.refused()) == ([], []), "whether others have it is not known yet"
        self.noted(None)
        if others:
            self.noted(b"theirs")
        self.now += HEARD_AFTER_S
        self.scheduler.forget("a", self.now)

    def noted(self, note):
        self.peers.noted(key_of("a"), note)

    def given_back(self):
        return sorted(self.do.given_back)

    def refused(self):
        return sorted((name, error.code) for name, error in self.do.refused)


def test_what_waits_for_a_model_that_was_removed_here_goes_to_those_that_have_it_once():
    world = Removed(others=True)
    assert world.given_back() == ["first", "second"]
    assert world.refused() == [("again", "MODEL_NOT_FOUND")]


def test_what_waits_for_a_model_that_nobody_has_any_more_is_refused():
    world = Removed(others=False)
    assert world.given_back() == []
    assert [name for name, _ in world.refused()] == ["again", "first", "second"]


def test_a_line_whose_model_was_removed_pulls_and_loads_nothing_until_it_is_back():
    world = World()
    world.scheduler.forget("a", world.now)
    pulls, launched = len(world.do.pulls), len(world.do.launched)
    world.line.pulling = False
    world.scheduler.line_has_work("a", world.now, Depth(jobs=100, size_bytes=10_000, oldest=world.now - 10))
    world.scheduler.stopped(world.line.replicas[0].worker, world.now)
    world.scheduler.tick(world.now + 10)
    assert (len(world.do.pulls), len(world.do.launched)) == (pulls, launched)
    world.scheduler.know(world.model, PROFILE, Known(footprint_bytes=4000, load_s=0.5), world.now)
    world.scheduler.tick(world.now + 20)
    assert len(world.do.launched) == launched + 1, "it is pinned, and back"
