"""A line of a node's own: tried like any other, asked for by nobody, renamed once its model has a name."""

import time

import msgspec
import pytest

from shoal.catalog.proof import LINE
from shoal.node.line import Known
from shoal.node.scheduler import Scheduler
from shoal.node.settings import Settings
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Profile
from shoal.protocol.status import ModelStatus, NodeStatus
from shoal.queue import Depth
from shoal.testing.effects import Recorded, answer, model, ticket

PROFILE = Profile(runtime="virtual")
NOW = time.time()


@pytest.fixture
def do():
    return Recorded()


@pytest.fixture
def scheduler(do):
    scheduler = Scheduler(Settings(memory_bytes=10**9), do)
    scheduler.know(model(LINE), PROFILE, Known(footprint_bytes=4000), NOW)
    return scheduler


def loaded(scheduler, name):
    (replica,) = scheduler.lines[name].replicas
    scheduler.loaded(replica.worker, PROFILE, 0.1, 4000, NOW)
    return replica


def test_what_is_offered_is_loaded_and_computed_and_nothing_is_pulled_or_claimed(scheduler, do):
    scheduler.peers.told(NodeStatus(node="other", models={LINE: ModelStatus(state="ready")}), NOW)
    asked = ticket("own", model(LINE), 3)
    scheduler.private.offer(asked, NOW)
    scheduler.line_has_work(LINE, NOW, Depth(5, 500, NOW))
    replica = loaded(scheduler, LINE)
    keys, _ = do.sent[replica.worker][0]
    scheduler.answered(replica.worker, answer(keys, seen=1), NOW)
    assert do.finished == [asked]
    assert (do.pulls, do.claims, do.asked_waiting) == ([], [], [])


def test_once_it_has_a_name_its_process_serves_that_and_jobs_are_pulled(scheduler, do):
    scheduler.private.offer(ticket("own", model(LINE)), NOW)
    replica = loaded(scheduler, LINE)
    scheduler.private.proved(LINE)
    named = msgspec.structs.replace(model("team/enc"), version=3)
    scheduler.private.rename(LINE, named, NOW)
    assert LINE not in scheduler.lines
    assert scheduler.lines["team/enc@3"].replicas == [replica]
    assert do.launched == [LINE]
    assert do.pulls[0][0] == "team/enc@3"


def test_a_load_that_failed_a_moment_ago_is_told_at_once(scheduler, do):
    scheduler.private.offer(ticket("first", model(LINE)), NOW)
    (replica,) = scheduler.lines[LINE].replicas
    scheduler.load_failed(replica.worker, ModelLoadFailed("no"), True, NOW)
    scheduler.private.offer(ticket("second", model(LINE)), NOW)
    assert [name for name, _ in do.refused] == ["first", "second"]


def test_what_is_given_up_while_it_loads_is_killed_and_the_next_is_loaded_at_once(scheduler, do):
    scheduler.private.offer(ticket("slow", model(LINE)), NOW)
    (replica,) = scheduler.lines[LINE].replicas
    scheduler.cancelled("slow", NOW)
    scheduler.private.abandon(LINE)
    scheduler.forget(LINE, NOW)
    assert do.killed == [replica.worker]
    scheduler.died(replica.worker, NOW)
    assert do.launched == [LINE]
    other = msgspec.structs.replace(model(LINE), digest="another")
    scheduler.know(other, PROFILE, Known(footprint_bytes=4000), NOW)
    scheduler.private.offer(ticket("next", other), NOW)
    assert do.launched == [LINE, LINE]
    assert scheduler.lines[LINE].model.digest == "another"


def test_a_pin_follows_what_its_name_means(scheduler, do):
    for version in (1, 2):
        of = msgspec.structs.replace(model("team/enc"), version=version)
        scheduler.know(of, PROFILE, Known(footprint_bytes=4000), NOW)
    scheduler.pin({"team/enc@1"}, NOW)
    assert do.launched == ["team/enc@1"]
    scheduler.pin({"team/enc@2"}, NOW)
    assert do.launched == ["team/enc@1", "team/enc@2"]
    assert [scheduler.lines[f"team/enc@{n}"].pinned for n in (1, 2)] == [False, True]
