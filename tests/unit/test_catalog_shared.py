"""The models of a cluster, from the notes of its nodes."""

import pytest

from names import VIRTUAL, VIRTUAL_RERANKER
from shoal.catalog.shared import SharedCatalog, key_of, note_of
from shoal.catalog.store import Store
from shoal.protocol.errors import ModelLoading, ModelNotFound, NoNode


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path)
    for name in (VIRTUAL, VIRTUAL_RERANKER):
        store.add(name)
    return store


@pytest.fixture
def catalog(store, clock):
    catalog = SharedCatalog(clock=clock)
    for model in store.models().values():
        catalog.noted(*note_of(model))
    return catalog


def test_it_finds_what_the_store_finds(catalog, store):
    assert list(catalog.models()) == list(store.models())
    assert catalog.cards().keys() == store.cards().keys()
    for name in (VIRTUAL, VIRTUAL.replace("/", "__")):
        theirs, ours = store.resolve(name), catalog.resolve(name)
        assert (ours.name, ours.facts, ours.card, ours.digest) == (
            VIRTUAL,
            theirs.facts,
            theirs.card,
            theirs.digest,
        )
    assert catalog.default_model("score").name == VIRTUAL_RERANKER
    for wrong in ("shoal/virtual-encode", f"{VIRTUAL}@none", f"{VIRTUAL}:none", "BAAI/bge-small-en-v1.5"):
        assert refusal(catalog, wrong) == refusal(store, wrong)


def refusal(catalog, name: str) -> str:
    with pytest.raises(ModelNotFound) as refused:
        catalog.resolve(name)
    return refused.value.message


def test_before_any_node_told_of_a_model_a_client_is_to_come_back():
    for ask in (lambda c: c.resolve(VIRTUAL), lambda c: c.default_model("encode")):
        with pytest.raises(NoNode, match="no node has joined") as refused:
            ask(SharedCatalog())
        assert refused.value.retryable
        with pytest.raises(ModelLoading, match="no node of this pool has a model yet") as refused:
            ask(SharedCatalog(nodes=lambda: 1))
        assert refused.value.retryable


def test_a_model_that_was_taken_down_goes_unless_another_node_has_it(catalog, store, clock):
    catalog.noted(key_of(VIRTUAL), None)
    catalog.noted(key_of(VIRTUAL_RERANKER), None)
    catalog.noted(*note_of(store.resolve(VIRTUAL)))
    assert catalog.resolve(VIRTUAL_RERANKER), "one node's word is not yet believed"
    clock.now = 2.0
    assert catalog.resolve(VIRTUAL)
    with pytest.raises(ModelNotFound):
        catalog.resolve(VIRTUAL_RERANKER)


def test_a_note_that_cannot_be_read_or_is_about_something_else_is_left_out(catalog, caplog):
    catalog.noted(key_of("org/m"), b"\xff{")
    catalog.noted("other/thing", b"x")
    assert list(catalog.models()) == [VIRTUAL, VIRTUAL_RERANKER]
    assert "org/m" in str([record.__dict__.get("fields") for record in caplog.records])


def test_what_is_meant_where_no_model_is_named_changes_with_the_models(catalog, store, clock):
    assert catalog.default_model("encode").name == VIRTUAL
    store.add(VIRTUAL, name="aaa/mine")
    catalog.noted(*note_of(store.resolve("aaa/mine")))
    assert catalog.default_model("encode").name == "aaa/mine"
    catalog.noted(key_of("aaa/mine"), None)
    clock.now = 2.0
    assert catalog.default_model("encode").name == VIRTUAL
