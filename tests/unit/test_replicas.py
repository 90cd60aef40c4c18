"""Several devices of one machine: who holds what, and how they share a line. No process, no clock."""

import time

import msgspec
import pytest

from shoal.node import devices
from shoal.node.cost import Cost
from shoal.node.line import Known
from shoal.node.placement import is_worth_a_load, may_load, predicted_wait
from shoal.node.scheduler import Scheduler
from shoal.node.settings import Settings
from shoal.protocol.errors import InvalidInput, ModelLoadFailed
from shoal.protocol.facts import Profile
from shoal.testing.effects import Recorded, answer, model, ticket

PROFILE = Profile(runtime="virtual", streams=1, batch_items=4, batch_tokens=400)
NOW = time.time()


class World:
    def __init__(self, count=3, pinned=("a",), memory=100_000) -> None:
        self.do = Recorded()
        settings = Settings(
            memory_bytes=memory, pinned=frozenset(pinned), devices=devices.named(f"virtual:{count}")
        )
        self.scheduler = Scheduler(settings, self.do)
        self.model = model("a")
        self.scheduler.know(self.model, PROFILE, Known(footprint_bytes=4000, load_s=0.01), NOW)
        self.line = self.scheduler.lines["a"]

    def load_all(self):
        while True:
            self.scheduler.tick(NOW)
            loading = [replica for replica in self.line.replicas if replica.status == "loading"]
            if not loading:
                return
            for replica in loading:
                self.scheduler.loaded(replica.worker, replica.profile, 0.5, 4000, NOW)

    def arrive(self, *tickets, now=NOW):
        self.scheduler.pulled("a", tickets, now)

    def ticket(self, name, texts=1):
        return ticket(name, self.model, texts)

    def texts(self, worker):
        return [item.text for _, items in self.do.sent.get(worker, []) for item in items]

    def answer(self, worker):
        flying = list(self.scheduler.workers[worker].flying)
        self.scheduler.answered(worker, answer(flying, seen=len(self.do.sent.get(worker, []))), NOW)

    def answer_everything(self):
        while self.line.flying:
            for worker in list(self.scheduler.workers):
                if self.scheduler.workers[worker].flying:
                    self.answer(worker)
            self.scheduler.tick(NOW + 1)


def test_a_pinned_model_is_held_by_every_device():
    world = World()
    world.load_all()
    assert [replica.device for replica in world.line.replicas] == ["virtual:0", "virtual:1", "virtual:2"]
    assert all(replica.profile.device == replica.device for replica in world.line.replicas)


def test_a_single_goes_to_the_device_that_is_free_first():
    world = World()
    world.load_all()
    for name in "123":
        world.arrive(world.ticket(name))
    assert sorted(len(world.texts(worker)) for worker in world.scheduler.workers) == [1, 1, 1]
    world.answer(2)
    world.arrive(world.ticket("4"))
    assert any("of 4" in text for text in world.texts(2))


def test_a_request_of_many_texts_is_shared_by_idle_devices_evenly():
    world = World()
    world.load_all()
    world.arrive(world.ticket("many", texts=12))
    assert [len(world.texts(worker)) for worker in world.scheduler.workers] == [4, 4, 4]
    world.answer_everything()
    assert [t.id for t in world.do.finished] == ["many"]


def test_what_was_at_a_device_that_died_is_computed_by_the_others():
    world = World()
    world.load_all()
    world.arrive(world.ticket("many", texts=12))
    world.scheduler.died(2, NOW)
    world.answer_everything()
    assert [t.id for t in world.do.finished] == ["many"]
    assert all(output.fault is None for output in world.do.finished[0].outputs)


def test_a_cancelled_job_is_called_back_from_every_device():
    world = World()
    world.load_all()
    world.arrive(world.ticket("many", texts=12))
    world.scheduler.cancelled("many", NOW)
    assert len(world.do.cancelled) == 12
    assert world.line.flying == 0


def test_another_device_loads_a_model_only_when_what_waits_is_worth_it():
    world = World(pinned=())
    world.arrive(world.ticket("first"))
    world.scheduler.loaded(1, PROFILE, 0.01, 4000, NOW)
    world.line.known.cost = Cost(a=0.01, b=0.001)
    world.line.learner = type(world.line.learner)(world.line.known.cost)
    assert world.do.launched == ["a"]
    world.arrive(world.ticket("many", texts=100), now=time.time() + 1)
    assert world.do.launched == ["a", "a"]


def test_a_replica_that_cannot_be_loaded_leaves_the_line_to_the_one_that_is():
    world = World()
    world.scheduler.tick(NOW)
    first, second = world.line.replicas[0], world.line.replicas[-1]
    world.scheduler.loaded(first.worker, PROFILE, 0.5, 4000, NOW)
    world.arrive(world.ticket("1"))
    second = next(replica for replica in world.line.replicas if replica.status == "loading")
    world.scheduler.load_failed(second.worker, ModelLoadFailed("no such device"), True, NOW)
    assert world.do.refused == []
    world.arrive(world.ticket("2"))
    world.answer_everything()
    assert {t.id for t in world.do.finished} == {"1", "2"}


def test_replaced_files_are_taken_up_only_when_no_device_holds_the_old_ones():
    world = World()
    world.load_all()
    world.arrive(world.ticket("flying", texts=12))
    changed = msgspec.structs.replace(world.model, digest="changed")
    world.scheduler.know(changed, PROFILE, Known(footprint_bytes=4000), NOW)
    assert world.line.model.digest == "of a"
    world.answer_everything()
    for worker in sorted(world.do.retired):
        assert world.line.model.digest == "of a"
        world.scheduler.stopped(worker, NOW)
    assert world.line.model.digest == "changed"


@pytest.mark.parametrize(
    ("given", "names"),
    [("cpu", ("cpu",)), ("virtual:2", ("virtual:0", "virtual:1")), ("cuda:2", ("cuda:0", "cuda:1"))],
)
def test_devices_are_named_by_kind_and_number(given, names):
    assert devices.named(given) == names


@pytest.mark.parametrize("given", ["", "tpu", "cpu:0", "cpu:-1", "virtual:many"])
def test_devices_that_mean_nothing_are_refused(given):
    with pytest.raises(InvalidInput):
        devices.named(given)


def test_replicas_on_one_processor_share_its_streams():
    profile = Profile(runtime="openvino", streams=8)
    assert devices.on_device(profile, "cpu:1", devices.named("cpu:2")).streams == 4
    assert devices.on_device(profile, "cpu", ("cpu",)) == profile


def test_tokens_are_told_from_bytes_for_short_and_long_texts_alike():
    line = World().line
    for _ in range(300):
        for tokens in (3, 10, 30, 400):
            line.learn_item(tokens, 5 * (tokens - 2))
    for tokens in (3, 10, 30, 400):
        assert line.tokens_in(1, 5 * (tokens - 2)) == pytest.approx(tokens, rel=0.02)


def test_a_wait_is_predicted_from_what_waits_and_who_computes_it():
    cost = Cost(a=0.01, b=0.001)
    assert predicted_wait(0, cost, 100, 1) == 0
    assert predicted_wait(1000, cost, 100, 1) == pytest.approx(1.1)
    assert predicted_wait(1000, cost, 100, 2) == pytest.approx(0.55)


def test_a_load_is_worth_it_for_a_long_wait_or_one_that_lasts_and_not_for_a_moment():
    assert not is_worth_a_load(0.04, oldest_s=9.0, load_s=0.1, target_s=0.1)
    assert not is_worth_a_load(3.0, oldest_s=9.0, load_s=0.1, target_s=10.0)
    assert is_worth_a_load(3.0, oldest_s=0.0, load_s=2.0, target_s=0.1)
    assert not is_worth_a_load(0.5, oldest_s=0.2, load_s=2.0, target_s=0.1)
    assert is_worth_a_load(0.5, oldest_s=1.0, load_s=2.0, target_s=0.1)


def test_a_tenth_of_the_devices_may_load_at_once_and_at_least_one():
    assert may_load(0, 4)
    assert not may_load(1, 4)
    assert may_load(1, 20)
