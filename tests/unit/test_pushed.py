"""What pushed names mean to gateways and nodes, from states that come late, twice or out of order."""

from pathlib import Path

import msgspec
import pytest

from names import VIRTUAL
from pushed_states import FACTS, after, alias, back, digest, named, push, remove
from shoal.catalog.names import parse_name
from shoal.catalog.pushed import LEAVES_AFTER_S, MOST_NOTE_BYTES, Pushed, note_of, noted
from shoal.catalog.shared import SharedCatalog
from shoal.catalog.shared import note_of as note_of_model
from shoal.catalog.stock import Stock
from shoal.catalog.store import Store
from shoal.node.stock import NodeStock
from shoal.protocol.errors import ModelNotFound

NAME = "team/enc"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def pushed(clock):
    return Pushed(lambda digest: Path("fetched") / digest, clock)


def find(pushed: Pushed, word: str):
    return pushed.find(parse_name(word))


def test_a_name_is_its_current_version_and_versions_and_aliases_are_asked_for_behind_an_at(pushed):
    assert pushed.learn(named(NAME, push(NAME, 1), push(NAME, 2), alias("prod", 1)))
    for word, number in {"": 2, "@1": 1, "@2": 2, "@prod": 1}.items():
        model = find(pushed, NAME + word)
        assert (model.version, model.name, model.shown) == (number, f"{NAME}@{number}", NAME + word)
        assert (model.digest, model.folder) == (digest(number), Path("fetched") / digest(number))
    assert find(pushed, "team__enc@prod").name == f"{NAME}@1"
    assert find(pushed, "team/other") is None
    with pytest.raises(ModelNotFound, match="it has @1, @2, @prod"):
        find(pushed, f"{NAME}@7")


def test_where_models_were_pushed_another_one_is_not_waited_for(pushed):
    pushed.learn(named(NAME, push(NAME, 1)))
    with pytest.raises(ModelNotFound, match=f"shoal add {VIRTUAL}"):
        SharedCatalog(pushed, nodes=lambda: 1).resolve(VIRTUAL)


def test_an_older_state_changes_nothing_and_a_rollback_is_a_newer_one(pushed):
    second = named(NAME, push(NAME, 1), push(NAME, 2))
    assert pushed.learn(second)
    assert not pushed.learn(named(NAME, push(NAME, 1)))
    assert not pushed.learn(second)
    assert find(pushed, NAME).version == 2
    assert pushed.learn(after(second, back()))
    assert find(pushed, NAME).version == 1


def test_a_removed_name_means_nothing_to_clients_and_is_computed_a_little_longer(pushed, clock):
    state = named(NAME, push(NAME, 1), push(NAME, 2))
    pushed.learn(state)
    pushed.learn(after(state, remove()))
    assert find(pushed, NAME) is None
    assert pushed.models() == {}
    assert pushed.version(f"{NAME}@2").digest == digest(2)
    clock.now = LEAVES_AFTER_S + 1
    assert pushed.version(f"{NAME}@2") is None


def test_nodes_take_up_what_names_and_aliases_mean_and_every_version_of_an_adapter(pushed, clock):
    pushed.learn(named(NAME, push(NAME, 1), push(NAME, 2), push(NAME, 3), alias("old", 1)))
    lora = named("team/lora", push("team/lora", 4, "org/base"), push("team/lora", 5, "org/base"))
    pushed.learn(lora)
    assert set(pushed.to_know()) == {f"{NAME}@1", f"{NAME}@3", "team/lora@1", "team/lora@2"}
    assert pushed.to_know()["team/lora@1"].line == "org/base"
    pushed.learn(after(lora, remove()))
    assert "team/lora@2" in pushed.to_know()
    clock.now = LEAVES_AFTER_S + 1
    assert set(pushed.to_know()) == {f"{NAME}@1", f"{NAME}@3"}


def test_a_note_says_what_the_state_says_but_for_its_history(pushed):
    state = named(NAME, push(NAME, 1), push(NAME, 2), alias("prod"))
    key, note = note_of(state)
    heard = noted(key, note)
    assert (heard.number, heard.current, heard.aliases, heard.versions) == (3, 2, {"prod": 2}, state.versions)
    assert not heard.history
    assert noted("model/x", b"{}") is None
    assert noted(key, None) is None
    assert noted(key, b"\xff") is None


def test_a_note_that_would_be_too_long_leaves_out_old_versions_and_the_registry_adds_them(pushed):
    facts = msgspec.structs.replace(FACTS, prompts={"query": "long " * 100})
    changes = [msgspec.structs.replace(push(NAME, number), facts=facts) for number in range(1, 999)]
    state = named(NAME, *changes, alias("first", 1))
    key, note = note_of(state)
    assert len(note) <= MOST_NOTE_BYTES
    heard = noted(key, note)
    assert {1, 998} <= heard.versions.keys()
    assert len(heard.versions) < 998
    assert pushed.learn(heard)
    assert pushed.learn(state)
    assert not pushed.learn(heard)
    assert find(pushed, f"{NAME}@2").version == 2


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path)
    store.add(VIRTUAL)
    return store


def test_both_catalogs_find_pushed_models_and_none_is_a_default_unless_nothing_else_could_answer(store, clock):
    pushed = Pushed(store.folder_of, clock)
    shared = SharedCatalog(pushed, clock)
    for catalog in (Stock(store, pushed), shared):
        pushed.learn(named("aaa/first", push("aaa/first", 1)))
        assert catalog.resolve("aaa/first").name == "aaa/first@1"
        assert catalog.resolve("aaa/first:int8").name == "aaa/first@1:int8"
        assert catalog.resolve("aaa/first:int8").shown == "aaa/first:int8"
        assert catalog.models()["aaa/first"].version == 1
        with pytest.raises(ModelNotFound, match="aaa/first:int8"):
            catalog.resolve("aaa/first:none")
    shared.noted(*note_of_model(store.resolve(VIRTUAL)))
    for catalog in (Stock(store, pushed), shared):
        assert list(catalog.models()) == ["aaa/first", VIRTUAL]
        assert catalog.default_model("encode").name == VIRTUAL
        with pytest.raises(ModelNotFound, match="did you mean aaa/first") as caught:
            catalog.resolve("aaa/frist")
        assert caught.value.detail == {"near": "aaa/first"}  # and no word of adding what is here
    store.remove(VIRTUAL)
    assert Stock(store, pushed).default_model("encode").name == "aaa/first@1"


def test_a_node_knows_versions_by_what_nodes_call_them_and_adapters_by_what_clients_do(store, clock):
    pushed = Pushed(store.folder_of, clock)
    pushed.learn(named(NAME, push(NAME, 1), push(NAME, 2)))
    pushed.learn(named("team/lora", push("team/lora", 3, f"{NAME}@2", digest(2))))
    stock = NodeStock(store, pushed)
    assert stock.resolve(f"{NAME}@1").digest == digest(1)
    assert stock.resolve(f"{NAME}@1:int8").name == f"{NAME}@1:int8"
    assert stock.resolve("team/lora").name == "team/lora@1"
    assert stock.resolve("team/lora@1").base_digest == digest(2)
    assert stock.resolve(VIRTUAL).name == VIRTUAL
    assert set(stock.models()) == {VIRTUAL, f"{NAME}@2", "team/lora@1"}
    with pytest.raises(ModelNotFound):
        stock.resolve("shoal:push")
