"""The node's decisions, driven event by event. No process, no clock, no sleep."""

import time

import msgspec
import pytest

from shoal.node.line import Known, Line
from shoal.node.loading import FAILED_FOR_S, LOAD_WITHIN_S, SHORTAGE_S
from shoal.node.memory import MAX_WAIT_S
from shoal.node.scheduler import STUCK_S, Scheduler
from shoal.node.settings import Settings
from shoal.protocol.errors import InvalidInput, ModelLoadFailed, ResourceExhausted
from shoal.protocol.facts import Profile
from shoal.testing.effects import Recorded, answer, model, ticket

PROFILE = Profile(runtime="virtual", streams=2, batch_items=4, batch_tokens=400)
NOW = time.time()


class World:
    def __init__(self, memory=10_000, pinned=(), sizes=None) -> None:
        self.do = Recorded()
        self.now = NOW
        self.scheduler = Scheduler(Settings(memory_bytes=memory, pinned=frozenset(pinned)), self.do)
        self.models = {}
        for name, size in (sizes or {"a": 4000}).items():
            self.models[name] = model(name)
            self.scheduler.know(self.models[name], PROFILE, Known(footprint_bytes=size), self.now)

    def arrive(self, *tickets, line="a"):
        self.scheduler.pulled(line, tickets, self.now)

    def ticket(self, name, of="a", texts=1, **more):
        return ticket(name, self.models[of], texts, **more)

    def load(self, name="a"):
        """Everything until `name` is ready, with nothing waiting for it."""
        self.arrive(self.ticket(f"first of {name}", name), line=name)
        worker = self.replica(name).worker
        self.scheduler.loaded(worker, PROFILE, 0.5, self.line(name).known.footprint_bytes, self.now)
        self.answer_all(worker)
        return worker

    def answer_all(self, worker):
        """The runtime answers every window it got so far."""
        windows = self.do.sent.get(worker, [])
        keys = [key for keys, _ in windows for key in keys]
        flying = [key for key in keys if key in self.scheduler.workers[worker].flying]
        self.scheduler.answered(worker, answer(flying, seen=len(windows)), self.now)

    def replica(self, name="a"):
        return self.line(name).replicas[-1]

    def line(self, name="a"):
        return self.scheduler.lines[name]

    def windows(self, worker):
        return [len(keys) for keys, _ in self.do.sent.get(worker, [])]


def test_a_model_is_loaded_by_its_first_request_once_and_the_requests_wait():
    world = World()
    world.arrive(world.ticket("1"), world.ticket("2"))
    world.arrive(world.ticket("3"))
    assert world.do.launched == ["a"]
    assert world.do.sent == {}
    world.scheduler.loaded(1, PROFILE, 0.5, 4000, world.now)
    world.answer_all(1)
    assert {t.id for t in world.do.finished} == {"1", "2", "3"}


def test_nothing_is_launched_for_a_request_whose_every_item_is_at_fault():
    world = World()
    empty = world.ticket("empty", texts=0)
    world.arrive(empty)
    assert world.do.launched == []
    assert world.do.finished == [empty]


def test_a_load_outlives_the_request_that_asked_for_it():
    world = World()
    world.arrive(world.ticket("1"))
    world.scheduler.cancelled("1", world.now)
    world.scheduler.loaded(1, PROFILE, 0.5, 4000, world.now)
    assert world.replica().status == "ready"
    assert world.do.dropped == ["1"]
    assert world.do.sent == {}


def test_a_lone_request_is_sent_at_once():
    world = World()
    worker = world.load()
    world.arrive(world.ticket("lone"))
    assert world.windows(worker)[-1] == 1
    assert world.do.wakes == []


def test_jobs_that_arrive_while_both_streams_are_busy_form_the_next_window():
    world = World()
    worker = world.load()
    before = len(world.windows(worker))
    world.arrive(world.ticket("1"))
    world.arrive(world.ticket("2"))
    for name in "345":
        world.arrive(world.ticket(name))
    assert world.windows(worker)[before:] == [1, 1]
    world.scheduler.tick(world.do.wakes[-1])
    assert world.windows(worker)[before:] == [1, 1, 3]


def test_a_full_micro_batch_for_each_stream_is_there_to_choose_from_and_no_more():
    world = World()
    worker = world.load()
    before = len(world.windows(worker))
    world.arrive(world.ticket("big", texts=40))
    sent = sum(world.windows(worker)[before:])
    assert sent == 2 * PROFILE.streams * PROFILE.batch_items
    assert len(world.replica().flying) == sent


def test_after_a_burst_of_answers_a_thin_window_waits_a_moment_for_the_same_clients():
    world = World()
    worker = world.load()
    world.arrive(world.ticket("1"), world.ticket("2"))
    world.answer_all(worker)
    before = len(world.windows(worker))
    world.arrive(world.ticket("3"))
    assert len(world.windows(worker)) == before
    assert world.do.wakes
    world.scheduler.tick(world.do.wakes[-1])
    assert world.windows(worker)[before:] == [1]


def test_a_request_of_many_texts_shares_its_windows_with_a_single_that_came_later():
    profile = Profile(runtime="virtual", streams=1, batch_items=64, batch_tokens=100_000)
    world = World()
    world.line().asked = profile
    world.arrive(world.ticket("many", texts=1000), world.ticket("one"))
    world.scheduler.loaded(1, profile, 0.5, 4000, world.now)
    _, items = world.do.sent[1][0]
    assert any("of one" in item.text for item in items)
    assert "of many" in items[0].text


def test_an_interactive_request_goes_before_a_batch_request_that_came_first():
    profile = Profile(runtime="virtual", streams=1, batch_items=4, batch_tokens=400)
    world = World()
    world.line().asked = profile
    world.arrive(world.ticket("slow", texts=100, priority="batch"), world.ticket("quick"))
    world.scheduler.loaded(1, profile, 0.5, 4000, world.now)
    _, items = world.do.sent[1][0]
    assert "of quick" in items[0].text
    assert "of slow" in items[1].text


def test_a_model_whose_files_change_while_requests_wait_for_it_answers_them_with_the_new_ones():
    world = World(memory=6000, sizes={"a": 4000, "b": 4000})
    world.arrive(world.ticket("other", "b"), line="b")  # its load takes the memory
    world.arrive(world.ticket("1"))
    changed = msgspec.structs.replace(world.models["a"], digest="changed")
    world.scheduler.know(changed, PROFILE, Known(footprint_bytes=1000), world.now)
    world.scheduler.check(world.now)
    assert world.do.launched == ["b", "a"]
    assert world.line().model.digest == "changed"


def test_a_replaced_model_lets_its_process_go_under_constant_traffic_and_nothing_is_lost():
    world = World()
    worker = world.load()
    world.arrive(world.ticket("flying"), world.ticket("also"))
    changed = msgspec.structs.replace(world.models["a"], digest="changed")
    world.scheduler.know(changed, PROFILE, Known(footprint_bytes=4000), world.now)
    world.arrive(world.ticket("later"))
    world.answer_all(worker)
    assert world.do.retired == [worker]
    world.scheduler.stopped(worker, world.now)
    assert world.line().model.digest == "changed"
    world.scheduler.loaded(world.replica().worker, PROFILE, 0.5, 4000, world.now)
    world.scheduler.tick(world.now + 1)
    world.answer_all(world.replica().worker)
    assert {t.id for t in world.do.finished} >= {"flying", "also", "later"}


def test_what_waits_for_a_removed_model_is_refused_and_its_process_goes():
    world = World()
    worker = world.load()
    world.arrive(world.ticket("big", texts=100))
    world.scheduler.forget("a", world.now)
    assert [(name, error.code) for name, error in world.do.refused] == [("big", "MODEL_NOT_FOUND")]
    world.answer_all(worker)
    assert world.do.retired == [worker]
    world.scheduler.stopped(worker, world.now)
    world.scheduler.forget("a", world.now)
    assert world.scheduler.lines == {}


def test_a_load_that_takes_for_ever_is_ended_and_tried_again():
    world = World()
    world.arrive(world.ticket("1"))
    world.scheduler.check(world.now + LOAD_WITHIN_S - 1)
    assert world.do.killed == []
    world.scheduler.check(world.now + LOAD_WITHIN_S + 1)
    assert world.do.killed == [1]


def test_a_shortage_while_loading_is_told_as_one_to_retry_and_soon_forgotten():
    world = World()
    world.arrive(world.ticket("1"))
    world.scheduler.load_failed(1, ResourceExhausted("no file handles"), False, world.now)
    assert [(name, error.code) for name, error in world.do.refused] == [("1", "RESOURCE_EXHAUSTED")]
    world.now += SHORTAGE_S + 1
    world.arrive(world.ticket("2"))
    assert world.do.launched == ["a", "a"]


def test_a_model_that_was_never_measured_is_loaded_rather_than_refused_by_a_guess():
    world = World(memory=1000, sizes={"a": 0})
    world.arrive(world.ticket("1"))
    assert world.do.launched == ["a"]
    assert world.do.refused == []


def test_answers_are_put_in_the_order_of_the_texts_whatever_the_order_they_come_in():
    world = World()
    worker = world.load()
    job = world.ticket("1", texts=3)
    world.arrive(job)
    keys, _ = world.do.sent[worker][-1]
    for key in reversed(keys):
        world.scheduler.answered(worker, answer([key], seen=len(world.do.sent[worker])), world.now)
    assert job in world.do.finished
    assert all(output is not None for output in job.outputs)


def test_a_second_answer_to_the_same_item_is_ignored():
    world = World()
    worker = world.load()
    world.arrive(world.ticket("1"))
    keys, _ = world.do.sent[worker][-1]
    for _ in range(2):
        world.scheduler.answered(worker, answer(keys, seen=2), world.now)
    assert [t.id for t in world.do.finished].count("1") == 1


def test_a_cancelled_job_is_not_sent_and_what_is_in_flight_is_called_back():
    world = World()
    worker = world.load()
    world.arrive(world.ticket("big", texts=40))
    flying = list(world.replica().flying)
    world.scheduler.cancelled("big", world.now)
    assert world.do.cancelled == flying
    assert world.line().waiting.items == 0
    world.arrive(world.ticket("next"))
    assert "of next" in world.do.sent[worker][-1][1][0].text


def test_a_job_past_its_deadline_is_refused_instead_of_started():
    world = World()
    world.load()
    world.arrive(world.ticket("late", deadline=world.now - 1))
    assert [(name, error.code) for name, error in world.do.refused] == [("late", "GATEWAY_TIMEOUT")]


def test_a_runtime_that_dies_is_started_again_and_what_was_unanswered_runs_alone():
    world = World()
    worker = world.load()
    world.arrive(world.ticket("1"), world.ticket("2"), world.ticket("3"))
    world.scheduler.died(worker, world.now)
    assert world.do.launched == ["a", "a"]
    again = world.replica().worker
    world.scheduler.loaded(again, PROFILE, 0.5, 4000, world.now)
    assert world.windows(again) == [1]
    for _ in range(3):
        world.answer_all(again)
    assert world.windows(again) == [1, 1, 1]
    assert {t.id for t in world.do.finished} >= {"1", "2", "3"}


def test_a_lone_item_that_kills_its_runtime_twice_fails_typed():
    world = World()
    worker = world.load()
    job = world.ticket("poison")
    world.arrive(job)
    world.scheduler.died(worker, world.now)
    second = world.replica().worker
    world.scheduler.loaded(second, PROFILE, 0.5, 4000, world.now)
    world.scheduler.died(second, world.now)
    assert job in world.do.finished
    assert job.outputs[0].fault.code == "RUNTIME_CRASHED"


def test_an_item_that_was_there_when_a_runtime_was_killed_from_outside_is_computed():
    world = World()
    worker = world.load()
    job, other = world.ticket("innocent"), world.ticket("other")
    world.arrive(job, other)
    for _ in range(2):  # once among others, once alone
        world.scheduler.died(worker, world.now)
        worker = world.replica().worker
        world.scheduler.loaded(worker, PROFILE, 0.5, 4000, world.now)
    for _ in range(3):
        world.answer_all(worker)
    assert {t.id for t in world.do.finished} >= {"innocent", "other"}
    assert job.outputs[0].fault is None


def test_an_item_among_others_that_kills_its_runtime_whenever_it_runs_fails_and_its_neighbours_succeed():
    world = World()
    worker = world.load()
    job = world.ticket("job", texts=3)
    world.arrive(job)
    world.scheduler.died(worker, world.now)
    while world.replica().status == "loading":
        worker = world.replica().worker
        world.scheduler.loaded(worker, PROFILE, 0.5, 4000, world.now)
        while world.replica().flying:
            if "text 1 " in world.do.sent[worker][-1][1][0].text:
                world.scheduler.died(worker, world.now)
                break
            world.answer_all(worker)
    assert job in world.do.finished
    codes = [output.fault.code if output.fault else "ok" for output in job.outputs]
    assert codes == ["ok", "RUNTIME_CRASHED", "ok"]


def test_a_runtime_that_dies_while_loading_is_tried_five_times_then_everyone_is_told():
    world = World()
    world.arrive(world.ticket("1"))
    for _ in range(5):
        world.scheduler.died(world.replica().worker, world.now)
    assert world.do.launched == ["a"] * 5
    ((name, error),) = world.do.refused
    assert (name, error.code, error.detail["attempts"]) == ("1", "MODEL_LOAD_FAILED", 5)


def test_a_failed_load_is_remembered_for_a_while_and_then_tried_again():
    world = World()
    world.arrive(world.ticket("1"))
    world.scheduler.load_failed(1, InvalidInput("not a model"), True, world.now)
    world.arrive(world.ticket("2"))
    assert [name for name, _ in world.do.refused] == ["1", "2"]
    assert all(isinstance(error, ModelLoadFailed) and error.detail["permanent"] for _, error in world.do.refused)
    assert world.do.launched == ["a"]
    world.now += FAILED_FOR_S + 1
    world.arrive(world.ticket("3"))
    assert world.do.launched == ["a", "a"]


def test_an_idle_model_makes_room_for_another_and_only_once_its_memory_is_back():
    world = World(memory=6000, sizes={"a": 4000, "b": 4000})
    worker = world.load("a")
    world.now += 60
    world.arrive(world.ticket("1", "b"), line="b")
    assert world.do.retired == [worker]
    assert world.do.launched == ["a"]
    world.scheduler.stopped(worker, world.now)
    assert world.do.launched == ["a", "b"]


def test_a_model_with_work_in_flight_is_never_retired_while_it_has_it():
    world = World(memory=6000, sizes={"a": 4000, "b": 4000})
    worker = world.load("a")
    world.now += 60
    world.arrive(world.ticket("busy", "a"))
    world.arrive(world.ticket("1", "b"), line="b")
    assert world.do.retired == []
    world.answer_all(worker)
    assert world.do.retired == [worker]


def test_a_model_that_never_rests_yields_after_a_while_and_comes_back_for_its_own():
    world = World(memory=6000, sizes={"a": 4000, "b": 4000})
    worker = world.load("a")
    world.now += 60
    world.arrive(world.ticket("flying", "a"), world.ticket("also", "a"))
    waiting = world.ticket("1", "b")
    world.arrive(waiting, line="b")
    world.now = waiting.arrived + MAX_WAIT_S + 1
    world.scheduler.tick(world.now)
    world.arrive(world.ticket("later", "a"))
    world.answer_all(worker)
    assert world.do.retired == [worker]
    world.scheduler.stopped(worker, world.now)
    assert world.do.launched == ["a", "b"]
    assert [t.id for t in world.do.finished if t.id == "later"] == []


def test_a_pinned_model_stays_and_what_cannot_fit_beside_it_is_refused_naming_the_setting():
    world = World(memory=6000, pinned=["a"], sizes={"a": 4000, "b": 4000})
    world.scheduler.tick(world.now)
    world.scheduler.loaded(1, PROFILE, 0.5, 4000, world.now)
    world.now += 60
    world.arrive(world.ticket("1", "b"), line="b")
    assert world.do.retired == []
    ((name, error),) = world.do.refused
    assert (name, error.code, error.detail["permanent"]) == ("1", "MODEL_LOAD_FAILED", True)
    assert "--memory" in error.message


def test_a_pinned_model_is_loaded_without_being_asked_for_and_again_when_it_dies():
    world = World(pinned=["a"])
    world.scheduler.tick(world.now)
    world.scheduler.loaded(1, PROFILE, 0.5, 4000, world.now)
    world.scheduler.died(1, world.now)
    assert world.do.launched == ["a", "a"]


def test_footprints_that_grow_past_the_budget_push_an_idle_model_out():
    world = World(memory=9000, sizes={"a": 4000, "b": 4000})
    first, second = world.load("a"), world.load("b")
    world.now += 60
    world.scheduler.measured_footprint(second, 6000, NOW)
    world.scheduler.check(world.now)
    assert len(world.do.retired) == 1
    assert world.do.retired[0] in (first, second)


def test_a_runtime_that_says_nothing_for_long_is_killed_one_that_answers_is_not():
    world = World()
    worker = world.load()
    world.arrive(world.ticket("1"))
    world.scheduler.check(world.now + STUCK_S - 1)
    assert world.do.killed == []
    world.scheduler.check(world.now + STUCK_S + 1)
    assert world.do.killed == [worker]


def test_the_queue_is_asked_for_about_a_window_and_not_while_one_is_in_hand():
    world = World()
    world.load()
    world.arrive()  # the pull that was out ends empty
    asked = len(world.do.pulls)
    assert world.do.pulls[-1] == ("a", PROFILE.streams * PROFILE.batch_items)
    world.scheduler.line_has_work("a", world.now)
    assert len(world.do.pulls) == asked, "one pull a line is outstanding"
    world.arrive(world.ticket("big", texts=100))
    assert world.do.pulls[asked:] == [("a", 7)], "one job is in hand, however many texts it has"


def test_a_job_delivered_again_while_in_hand_is_computed_once_and_acknowledged_with_the_new_lease():
    world = World()
    worker = world.load()
    first = world.ticket("1")
    world.arrive(first)
    again = world.ticket("1")
    world.arrive(again)
    world.answer_all(worker)
    assert [t for t in world.do.finished if t.id == "1"] == [first]
    assert first.delivery is again.delivery


@pytest.mark.parametrize("texts", [1, 7, 100])
def test_every_item_is_sent_exactly_once(texts):
    world = World()
    worker = world.load()
    world.arrive(world.ticket("job", texts=texts))
    for _ in range(texts):
        world.answer_all(worker)
        world.scheduler.tick(world.now + 1)
    items = [item.text for _, items in world.do.sent[worker] for item in items if "of job" in item.text]
    assert sorted(items) == sorted(f"text {index} of job" for index in range(texts))
    assert [t.id for t in world.do.finished].count("job") == 1


def test_thousands_of_known_models_are_not_looked_at_for_a_request_to_one(monkeypatch):
    world = World(memory=10**9, sizes={f"m{number}": 4000 for number in range(2000)})
    world.scheduler.tick(world.now)
    looked_at = []
    wanted = Line.wants_process.fget
    monkeypatch.setattr(Line, "wants_process", property(lambda line: looked_at.append(line) or wanted(line)))
    worker = world.load("m7")
    for number in range(10):
        world.arrive(world.ticket(str(number), "m7"), line="m7")
        world.answer_all(worker)
        world.scheduler.tick(world.now)
    assert {line.model.name for line in looked_at} == {"m7"}


def test_what_waits_without_a_process_is_seen_to_by_the_next_tick_however_long_it_was_quiet():
    world = World(memory=5000, sizes={"a": 4000, "b": 4000})
    world.load("a")
    for _ in range(3):
        world.now += 100
        world.scheduler.check(world.now)
    world.arrive(world.ticket("1", "b"), line="b")
    world.scheduler.stopped(world.replica("a").worker, world.now)
    assert world.do.launched == ["a", "b"]
