"""Profiles as files: whose is used, what no file may ask for, and what a machine is called."""

import json
import logging
from pathlib import Path

import msgspec
import pytest

from shoal.catalog import Card, Folder, Model
from shoal.catalog import profiles as kept_profiles
from shoal.catalog.cards import all_cards
from shoal.catalog.profiles import (
    Figure,
    Kept,
    Profiles,
    Shipped,
    all_shipped,
    device_kind,
    for_kind,
    parse_shipped,
)
from shoal.catalog.store import Store
from shoal.node import devices
from shoal.protocol.errors import InvalidInput
from shoal.protocol.facts import Facts, Profile
from shoal.testing.checkpoints import tiny_encoder

KIND = "x86_64-bf16-2"
RULE = Profile(runtime="openvino", dtype="bf16", streams=2, tolerance=0.9999)
KEPT = Kept(runtime="openvino", dtype="fp32", tolerance=0.99995, by="a test", figures=(Figure("cosine", 0.9998),))
FACTS = Facts(tasks=("encode",), family="bert", files="safetensors", max_tokens=64, dims=32, pooling="mean")
MINILM = "sentence-transformers/all-MiniLM-L6-v2"


def model(card: Card | None = None, **more) -> Model:
    card = card or Card(name="acme/m", source=Folder("/somewhere"))
    return Model(card=card, facts=FACTS, folder=Path("nowhere"), digest="ab" * 32, size_bytes=1, **more)


@pytest.fixture
def profiles(tmp_path: Path) -> Profiles:
    return Profiles(tmp_path, KIND)


@pytest.fixture
def shipped(monkeypatch) -> Kept:
    """What comes with MiniLM's card, for this test alone."""
    kept = msgspec.structs.replace(KEPT, tolerance=0.98, batch_items=7)
    known = {MINILM: Shipped(name=MINILM, digest="cd" * 32, on={KIND: kept})}
    monkeypatch.setattr(kept_profiles, "all_shipped", lambda: known)
    return kept


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        ({"avx2", "avx512f", "avx512_bf16", "amx_bf16"}, "x86_64-amx-8"),
        ({"avx2", "avx512f", "avx512_bf16"}, "x86_64-bf16-8"),
        ({"avx2", "avx512f"}, "x86_64-avx512-8"),
        ({"avx2"}, "x86_64-avx2-8"),
        (set(), "x86_64-plain-8"),
    ],
)
def test_a_kind_of_device_is_called_by_its_best_feature_and_its_cores(flags, kind):
    assert device_kind("x86_64", flags, 8) == kind


def test_what_was_settled_here_is_found_again_by_a_later_process(profiles, tmp_path):
    profiles.write(model(), KEPT)
    assert profiles.of(model()) == Profiles(tmp_path, KIND).of(model()) == KEPT


def test_another_kind_of_device_has_profiles_of_its_own(profiles, tmp_path):
    profiles.write(model(), KEPT)
    assert Profiles(tmp_path, "x86_64-amx-2").of(model()) is None


def test_other_files_under_the_same_name_have_none(profiles):
    profiles.write(model(), KEPT)
    assert profiles.of(msgspec.structs.replace(model(), digest="cd" * 32)) is None


def test_a_change_on_disk_is_seen_once(profiles, tmp_path):
    assert not profiles.refresh()
    Profiles(tmp_path, KIND).write(model(), KEPT)
    assert [profiles.refresh(), profiles.refresh()] == [True, False]
    assert profiles.of(model()) == KEPT


def test_sizes_that_were_settled_before_stay_when_the_dtype_is_settled_again(profiles):
    profiles.write(model(), msgspec.structs.replace(KEPT, batch_tokens=512))
    profiles.write(model(), msgspec.structs.replace(KEPT, dtype="bf16"))
    found = profiles.of(model())
    assert (found.dtype, found.batch_tokens) == ("bf16", 512)


@pytest.mark.parametrize(
    "damage",
    [
        b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000,
        {"tolerance": 0.2}, {"tolerance": 1.5}, {"tolerance": None}, {"dtype": "int8"}, {"runtime": "../x"},
        {"streams": 100_000}, {"streams": 0}, {"batch_items": 10**9}, {"batch_tokens": 1}, {"fixed_price": -1},
        {"square_price": 1e300}, {"by": "x" * 1000}, {"unheard_of": 1},
        {"figures": [{"what": "x", "value": 1.0}] * 1000},
    ],
    ids=str,
)  # fmt: skip
def test_a_damaged_or_absurd_file_is_ignored_and_the_log_says_so(profiles, caplog, damage):
    path = profiles.write(model(), KEPT)
    if isinstance(damage, dict):
        damage = json.dumps(json.loads(path.read_bytes()) | damage).encode()
    path.write_bytes(damage)
    with caplog.at_level(logging.WARNING, "shoal.catalog"):
        profiles.refresh()
    assert profiles.of(model()) is None
    assert path.name in caplog.text


def test_a_file_being_written_is_never_seen_half(profiles, tmp_path):
    path = profiles.write(model(), KEPT)
    (path.parent / f".{path.name}.123").write_bytes(b"{")  # left by a writer that died
    assert Profiles(tmp_path, KIND).of(model()) == KEPT


def test_the_stores_own_goes_before_what_is_shipped(profiles, shipped):
    minilm = model(all_cards()[MINILM])
    assert profiles.of(minilm) == shipped
    profiles.write(minilm, KEPT)
    assert profiles.of(minilm) == KEPT


def test_what_is_shipped_holds_only_for_files_from_where_the_card_says(profiles, shipped):
    own = msgspec.structs.replace(all_cards()[MINILM], source=Folder("/my/finetune"))
    assert profiles.of(model(own)) is None


def test_with_other_cores_the_dtype_holds_and_sizes_do_not(shipped):
    akin = for_kind({KIND: shipped}, "x86_64-bf16-64")
    assert (akin.dtype, akin.tolerance, akin.batch_items) == ("fp32", 0.98, None)
    assert for_kind({KIND: shipped}, "x86_64-amx-2") is None


def test_what_was_settled_changes_the_rule_only_for_its_own_runtime_and_device():
    sized = msgspec.structs.replace(KEPT, batch_tokens=512)
    applied = sized.applied(RULE)
    assert (applied.dtype, applied.tolerance, applied.batch_tokens) == ("fp32", 0.99995, 512)
    assert (applied.streams, applied.batch_items) == (RULE.streams, RULE.batch_items)
    for other in ({"runtime": "onnx"}, {"runtime": "pytorch", "device": "cuda"}):
        rule = msgspec.structs.replace(RULE, **other)
        assert sized.applied(rule) == rule


def test_a_node_goes_by_what_was_settled_and_a_variant_by_what_it_says(tmp_path):
    tiny_encoder(tmp_path / "tiny")
    store = Store(tmp_path / "home")
    found = store.add(tmp_path / "tiny", name="acme/tiny")
    profiles = Profiles(store.home, devices.kind())
    rule = devices.profile_for(found, profiles)
    profiles.write(found, msgspec.structs.replace(KEPT, runtime=rule.runtime, dtype="fp32", streams=1))
    asked = devices.profile_for(found, profiles)
    assert (asked.dtype, asked.tolerance, asked.streams) == ("fp32", 0.99995, 1)
    light = devices.profile_for(store.resolve("acme/tiny:int8"), profiles)
    assert (light.dtype, light.tolerance, light.streams) == ("int8", 0.99, rule.streams)


def test_a_profile_goes_with_its_model(tmp_path):
    tiny_encoder(tmp_path / "tiny")
    store = Store(tmp_path / "home")
    found = store.add(tmp_path / "tiny", name="acme/tiny")
    path = Profiles(store.home, KIND).write(found, KEPT)
    assert store.collect() == []
    store.remove("acme/tiny")
    assert [leftover.path for leftover in store.collect()] == [path]
    assert not path.exists()


def test_each_that_is_shipped_is_of_a_card_and_names_how_it_was_measured():
    for name, shipped in all_shipped().items():
        assert all_cards()[name].name == shipped.name
        for kept in shipped.on.values():
            assert kept.by
            assert kept.engine
            assert kept.figures
            assert kept.dtype == "fp32" or all(figure.passed for figure in kept.figures)


def test_a_shipped_file_with_a_word_too_many_is_refused_by_name():
    with pytest.raises(InvalidInput, match=r"x.toml: .*colour"):
        parse_shipped(f'name = "a/b"\ndigest = "{"a" * 64}"\ncolour = 1\n[on]\n', "x.toml")
