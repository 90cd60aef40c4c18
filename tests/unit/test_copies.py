"""Copies of what is in an object store: whole or not there, within the disk's budget, gone at any time."""

import os

import pytest

from names import VIRTUAL
from shoal.catalog.copies import Copies, Copy, to_drop
from shoal.catalog.store import Store
from shoal.protocol.errors import ResourceExhausted

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


def put(copies: Copies, digest: str, size_bytes: int = 100, used_at: float = 0.0) -> None:
    (copies.coming(digest) / "model.safetensors").write_bytes(b"x" * size_bytes)
    os.utime(copies.came(digest), (used_at, used_at))


@pytest.mark.parametrize(
    ("taken", "size", "budget", "free", "going"),
    [
        (0, 100, 0, 1000, []),
        (0, 100, 0, 50, [B]),
        (0, 100, 400, 1000, []),
        (100, 100, 400, 1000, [B]),
        (100, 200, 400, 1000, [B, C]),
        (1000, 200, 400, 1000, [B, C, A]),
    ],
)
def test_those_go_that_were_not_used_for_longest_and_no_more_than_needed(taken, size, budget, free, going):
    copies = {A: Copy(100, 3.0), B: Copy(100, 1.0), C: Copy(100, 2.0)}
    assert to_drop(copies, taken, size, budget, free) == going


def test_a_copy_has_its_name_only_once_it_is_whole(tmp_path):
    copies = Copies(tmp_path)
    (copies.coming(A) / "1_Pooling").mkdir()
    (copies.coming(A) / "1_Pooling" / "config.json").write_text("{}")
    assert copies.all() == {}
    assert not copies.used(A)
    assert (copies.came(A) / "1_Pooling" / "config.json").read_text() == "{}"
    assert copies.all()[A].size_bytes == 2
    copies.remove(A)
    assert copies.all() == {}
    copies.remove(A)


def test_one_process_at_a_time_fetches_an_artifact(tmp_path):
    with Copies(tmp_path).alone(A) as first, Copies(tmp_path).alone(A) as second:
        assert (first, second) == (True, False)
    with Copies(tmp_path).alone(A) as again:
        assert again


def test_copies_make_room_for_one_another_and_for_what_is_added_and_models_never_for_copies(tmp_path, monkeypatch):
    store = Store(tmp_path)
    model = store.add(VIRTUAL)
    monkeypatch.setenv("SHOAL_DISK", f"{model.size_bytes + 250}B")
    for number, digest in enumerate((A, B)):
        store.make_room_for_copy(100)
        put(store.copies, digest, used_at=number)
    store.make_room_for_copy(100)
    assert set(store.copies.all()) == {B}
    with pytest.raises(ResourceExhausted, match="SHOAL_DISK"):
        store.make_room_for_copy(300)
    assert store.resolve(VIRTUAL).folder.is_dir()
    put(store.copies, C, used_at=2)
    monkeypatch.setenv("SHOAL_DISK", f"{2 * model.size_bytes + 120}B")
    store.add("shoal/virtual-reranker")
    assert len(store.copies.all()) < 2


def test_gc_removes_copies_and_what_came_of_others_and_keeps_what_was_measured_of_them_as_long(tmp_path):
    store = Store(tmp_path)
    store.add(VIRTUAL)
    put(store.copies, A)
    (store.copies.coming(B) / "part").write_bytes(b"x")
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / f"{A[:32]}.openvino.json").write_text("{}")
    with store.copies.alone(B):
        assert {leftover.path.name for leftover in store.leftovers()} == {A}, "B is on its way"
    paths = {leftover.path.name for leftover in store.collect()}
    assert paths == {A, B}
    assert store.copies.all() == {}
    assert {leftover.path.name for leftover in store.collect()} == {f"{A[:32]}.openvino.json"}
