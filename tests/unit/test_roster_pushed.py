"""What a node makes of pushed names: taken up as they are told, proved models given their names, bases held to."""

import msgspec
import pytest

from names import VIRTUAL
from pushed_states import after, back, digest, named, push, remove
from shoal.catalog.profiles import Profiles
from shoal.catalog.proof import LINE
from shoal.catalog.pushed import Pushed
from shoal.catalog.store import Store
from shoal.node.measured import MeasuredStore
from shoal.node.roster import Roster
from shoal.node.scheduler import Scheduler
from shoal.node.settings import Settings
from shoal.node.stock import NodeStock
from shoal.protocol.errors import InvalidInput, ModelLoadFailed
from shoal.testing.effects import Recorded

NAME = "team/enc"


class World:
    def __init__(self, home, pins=()):
        self.store = Store(home)
        self.store.add(VIRTUAL)
        self.do, self.pushed = Recorded(), Pushed(self.store.folder_of)
        self.scheduler = Scheduler(Settings(memory_bytes=10**10, pinned=frozenset(pins)), self.do)
        self.stock = NodeStock(self.store, self.pushed)
        profiles = Profiles(home, "test")
        self.roster = Roster(
            self.stock, MeasuredStore(home / "measured"), profiles, self.scheduler, frozenset(pins)
        )

    def hear(self, state):
        self.pushed.learn(state)
        self.roster.refresh()

    @property
    def lines(self):
        return self.scheduler.lines.keys() - {VIRTUAL}


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_line_for_each_version_that_is_meant_and_none_for_adapters(world):
    state = named(NAME, push(NAME, 1))
    world.hear(state)
    assert world.lines == {f"{NAME}@1"}
    world.hear(after(state, push(NAME, 2)))
    world.hear(named("team/lora", push("team/lora", 3, VIRTUAL), push("team/lora", 4, VIRTUAL)))
    assert world.lines == {f"{NAME}@1", f"{NAME}@2"}
    assert set(world.roster.adapters) == {"team/lora@1", "team/lora@2"}
    world.hear(after(state, push(NAME, 2), back()))
    assert world.lines == {f"{NAME}@1", f"{NAME}@2"}, "what is held stays until memory is wanted"


def test_a_version_that_was_removed_keeps_its_line_while_it_can_be_computed(world):
    state = named(NAME, push(NAME, 1))
    world.hear(state)
    world.hear(after(state, remove()))
    assert world.lines == {f"{NAME}@1"}


def test_a_pin_by_name_moves_with_what_it_means(tmp_path):
    world = World(tmp_path, [NAME])
    state = named(NAME, push(NAME, 1))
    world.hear(state)
    assert world.do.launched == [f"{NAME}@1"]
    world.hear(after(state, push(NAME, 2)))
    assert world.do.launched == [f"{NAME}@1", f"{NAME}@2"]
    assert [world.scheduler.lines[f"{NAME}@{n}"].pinned for n in (1, 2)] == [False, True]


def test_what_was_proved_here_is_served_from_the_same_line_and_other_files_are_not(world):
    version = named(NAME, push(NAME, 1)).versions[1]
    on_trial = msgspec.structs.replace(version.card, name=LINE)
    model = msgspec.structs.replace(
        world.store.resolve(VIRTUAL), card=on_trial, facts=version.facts, digest=digest(1), size_bytes=100
    )
    world.stock.proving[LINE] = model
    world.roster.take_up(LINE)
    line = world.scheduler.lines[LINE]
    world.hear(named("team/other", push("team/other", 2)))
    assert world.lines == {LINE, "team/other@1"}
    world.hear(named("team/same", push("team/same", 1)))
    assert world.scheduler.lines[LINE] is line, "it is still on trial"
    world.scheduler.private.proved(LINE)
    world.hear(named(NAME, push(NAME, 1)))
    assert world.scheduler.lines[f"{NAME}@1"] is line
    assert not line.is_private


def test_an_adapter_is_for_the_files_that_it_was_proved_with(world):
    base = world.store.resolve(VIRTUAL)
    fitting = push("team/lora", 3, VIRTUAL, base.digest)
    world.hear(named("team/lora", fitting, push("team/lora", 4, VIRTUAL, digest(9))))
    assert world.roster.adapter("team/lora@1", base).digest == digest(3)
    with pytest.raises(ModelLoadFailed, match="made for other files"):
        world.roster.adapter("team/lora", base)
    world.hear(named(NAME, push(NAME, 1)))
    with pytest.raises(InvalidInput, match=f"adapter of {VIRTUAL}, not of {NAME}@1"):
        world.roster.adapter("team/lora@1", world.stock.resolve(f"{NAME}@1"))
