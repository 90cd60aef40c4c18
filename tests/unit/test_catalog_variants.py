"""Names with a version and a variant: what they find, and what is said of those that find nothing."""

import os
from pathlib import Path

import msgspec
import pytest
from model_folders import write_encoder, write_scorer

from shoal.catalog import Card, Folder, Hub, Model, Variant
from shoal.catalog.budget import disk_budget, to_evict
from shoal.catalog.cards import all_cards, parse_card
from shoal.catalog.missing import is_version
from shoal.catalog.names import Asked, parse_name
from shoal.catalog.store import Store
from shoal.catalog.variants import variants_of
from shoal.catalog.wanted import card_for
from shoal.node.devices import default_profile
from shoal.protocol.errors import InvalidInput, ModelNotFound, ResourceExhausted
from shoal.protocol.facts import Facts

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
COMMIT = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        ("org/name", ("org/name", "", "")),
        ("org/name:int8", ("org/name", "", "int8")),
        ("org/name@v1", ("org/name", "v1", "")),
        ("org/name@v1:int8", ("org/name", "v1", "int8")),
        ("org__name:int8", ("org__name", "", "int8")),
        ("name@", ("name", "", "")),
        ("", ("", "", "")),
        ("a:b:c", ("a", "", "b:c")),
    ],
)
def test_a_name_is_cut_into_model_version_and_variant(asked: str, parts: tuple[str, str, str]) -> None:
    assert parse_name(asked) == Asked(*parts)


def test_a_variant_is_a_model_of_its_own_with_the_same_files(store: Store, tmp_path: Path) -> None:
    plain = store.add(write_encoder(tmp_path / "m"), name="acme/m")
    for asked in ("acme/m:int8", "acme__m:int8"):
        variant = store.resolve(asked)
        assert (variant.name, variant.variant, variant.folder) == ("acme/m:int8", "int8", plain.folder)
    assert store.resolve("acme/m").name == "acme/m"
    assert list(store.models()) == ["acme/m"]


def test_the_variants_of_a_card_are_the_ones_there_are(store: Store, tmp_path: Path) -> None:
    folder = Folder(path=str(write_encoder(tmp_path / "m")))
    half = Variant(dtype="bf16", tolerance=0.999, note="on what")
    store.add(Card(name="acme/m", source=folder, variants={"half": half}))
    assert store.resolve("acme/m:half").name == "acme/m:half"
    with pytest.raises(ModelNotFound, match=r"acme/m has no variant 'int8'; it has: acme/m:half"):
        store.resolve("acme/m:int8")


def test_a_scorer_has_no_variant_that_was_not_measured(store: Store, tmp_path: Path) -> None:
    store.add(write_scorer(tmp_path / "judge"))
    with pytest.raises(ModelNotFound, match="it has: none"):
        store.resolve("judge:int8")


def test_a_variant_of_an_unknown_model_is_an_unknown_model(store: Store) -> None:
    with pytest.raises(ModelNotFound, match=f"shoal add {MINILM}$"):
        store.resolve(f"{MINILM}:int8")


def test_a_variant_runs_in_its_dtype_and_says_its_own_tolerance() -> None:
    facts = Facts(tasks=("encode",), family="bert", files="safetensors", max_tokens=9, dims=3, pooling="mean")
    variant = Variant(dtype="int8", tolerance=0.995)
    profile = default_profile(facts, None, variant)
    assert (profile.dtype, profile.tolerance) == ("int8", 0.995)
    assert profile.runtime == default_profile(facts, None).runtime


def test_every_variant_on_a_card_says_what_was_measured() -> None:
    for card in all_cards().values():
        for name, variant in card.variants.items():
            assert parse_name(f"{card.name}:{name}") == Asked(card.name, "", name)
            assert 0.9 < variant.tolerance <= 1, card.name
            assert variant.note, card.name


def test_a_card_may_name_variants_and_a_hub() -> None:
    text = (
        'name = "acme/m"\n[source]\nkind = "hub"\nrepo = "acme/m"\n'
        '[variants.int8]\ndtype = "int8"\ntolerance = 0.997\nnote = "on a hundred texts"\n'
    )
    card = parse_card(text, "m.toml")
    assert card.source == Hub("acme/m")
    assert card.variants["int8"].tolerance == 0.997
    with pytest.raises(InvalidInput, match=r"m\.toml: .*dtype"):
        parse_card(text.replace('"int8"\nt', '"int3"\nt'), "m.toml")


@pytest.mark.parametrize("version", [COMMIT, COMMIT[:7], COMMIT[:12], "v1.0"])
def test_a_version_is_the_commit_its_beginning_or_what_it_was_asked_for_by(version: str) -> None:
    assert is_version(Card(name="m", source=Hub("m", "v1.0"), revision=COMMIT), version)


@pytest.mark.parametrize("version", [COMMIT[:6], "v2", "main", COMMIT[1:], "None"])
def test_another_version_is_not(version: str) -> None:
    assert not is_version(Card(name="m", source=Hub("m", "v1.0"), revision=COMMIT), version)
    assert not is_version(Card(name="m", source=Folder(path="m")), version)


def test_a_version_that_is_not_here_is_told_which_one_is(store: Store, tmp_path: Path) -> None:
    folder = Folder(path=str(write_encoder(tmp_path / "m")))
    store.add(Card(name="acme/m", source=folder, revision=COMMIT))
    assert store.resolve(f"acme/m@{COMMIT}:int8").name == "acme/m:int8"
    with pytest.raises(ModelNotFound, match=f"here at revision {COMMIT}, not at 'v9'"):
        store.resolve("acme/m@v9")


def test_what_is_named_is_told_apart(tmp_path: Path) -> None:
    known = {"acme/known": Card(name="acme/known", source=Hub("acme/known", COMMIT), revision=COMMIT)}
    folder = write_encoder(tmp_path / "mine")
    archive = tmp_path / "packed.tar.gz"
    archive.write_bytes(b"")

    def source(what: str) -> object:
        return card_for(what, None, known).source

    assert source("acme/known") == Hub("acme/known", COMMIT)
    assert source(f"acme/known@{COMMIT}") == Hub("acme/known", COMMIT)
    assert source("acme/known@v2") == Hub("acme/known", "v2")
    assert source("acme/other") == Hub("acme/other")
    assert source("acme/other@v2:int8") == Hub("acme/other", "v2")
    assert source(str(folder)) == Folder(path=str(folder))
    assert card_for(str(archive), None, known).name == "packed"
    newer = card_for("acme/known@v2", None, known)
    assert (newer.name, newer.revision, newer.verified) == ("acme/known", None, False)
    for what in ("nothing-like-it", "a/b/c", "./gone", "gone.tar.gz", "a b/c"):
        with pytest.raises((InvalidInput, ModelNotFound)):
            source(what)


def test_a_known_name_in_other_capitals_is_not_looked_for_on_the_hub() -> None:
    with pytest.raises(ModelNotFound) as caught:
        card_for(MINILM.upper(), None, all_cards())
    assert MINILM in caught.value.message


@pytest.mark.parametrize("name", ["model.zip", "train.py"])
def test_a_file_that_is_no_archive_of_a_model_is_told_so(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(InvalidInput, match=rf"{name} is a file; a model is a folder"):
        card_for(str(tmp_path / name), None, {})


def test_8_bit_weights_are_offered_where_a_runtime_has_them(tmp_path: Path) -> None:
    facts = Facts(tasks=("encode",), family="electra", files="safetensors", max_tokens=512, dims=8)
    card = Card(name="acme/m", source=Folder(str(tmp_path)))
    assert variants_of(card, facts) == {}
    assert set(variants_of(card, msgspec.structs.replace(facts, family="bert"))) == {"int8"}


def test_the_notes_on_cards_are_one_line_each() -> None:
    notes = [variant.note for card in all_cards().values() for variant in card.variants.values()]
    assert notes
    assert not any("\n" in note for note in notes)


def test_a_wheels_model_cannot_be_had_at_another_version() -> None:
    with pytest.raises(InvalidInput, match="comes from a package"):
        card_for(f"{MINILM}@main", None, all_cards())


@pytest.mark.parametrize(
    ("said", "size_bytes"),
    [("20GB", 20 * 10**9), ("1.5 mb", 1_500_000), ("800M", 800 * 10**6), ("12b", 12), ("3k", 3000)],
)
def test_a_budget_is_a_number_with_a_unit(said: str, size_bytes: int) -> None:
    assert disk_budget(said) == size_bytes


@pytest.mark.parametrize("said", ["lots", "-1GB", "0", "50", "1 PB", "GB", "1e9", "1,5GB"])
def test_anything_else_is_no_budget(said: str) -> None:
    with pytest.raises(InvalidInput, match=r"SHOAL_DISK|disk budget"):
        disk_budget(said)


def model(name: str, size_bytes: int = 100, *, digest: str = "", keep: bool = False) -> Model:
    return Model(
        card=Card(name=name, source=Folder(path=name)),
        facts=Facts(tasks=("encode",), family="bert", files="safetensors", max_tokens=8, dims=4),
        folder=Path(name),
        digest=digest or name,
        size_bytes=size_bytes,
        keep=keep,
    )


def evicted(models: list[Model], size_bytes: int, budget: int, *, may_evict: bool = True) -> list[str]:
    used = {"a": 30.0, "b": 10.0, "c": 20.0}
    return to_evict({m.name: m for m in models}, used, size_bytes, budget, may_evict=may_evict)


def test_the_least_recently_used_go_first_and_no_more_than_are_needed() -> None:
    models = [model("a"), model("b"), model("c")]
    assert evicted(models, 100, 400) == []
    assert evicted(models, 100, 300) == ["b"]
    assert evicted(models, 150, 300) == ["b", "c"]
    assert evicted([*models, model("never used")], 100, 400) == ["never used"]


def test_what_is_kept_stays_and_shared_files_go_with_the_last_that_needs_them() -> None:
    assert evicted([model("a"), model("b", keep=True)], 100, 200) == ["a"]
    shared = [model("a"), model("b", digest="same"), model("c", digest="same")]
    assert evicted(shared, 100, 200) == ["b", "c"]


@pytest.mark.parametrize(
    ("models", "may_evict", "words"),
    [
        ([model("a")], False, "--evict"),
        ([model("a", keep=True)], True, "--keep"),
        ([], True, "over the budget"),
    ],
)
def test_what_cannot_fit_is_refused_with_sizes_and_the_setting(
    models: list[Model], may_evict: bool, words: str
) -> None:
    with pytest.raises(ResourceExhausted, match=words) as caught:
        evicted(models, 160, 150, may_evict=may_evict)
    assert (caught.value.detail["limit"], caught.value.detail["size"]) == (150, 160)
    assert caught.value.detail["setting"] == "SHOAL_DISK"


def test_use_is_seen_in_what_the_node_measures(store: Store, tmp_path: Path) -> None:
    old, new = (store.add(write_encoder(tmp_path / name, seed=seed)) for name, seed in (("old", 1), ("new", 2)))
    for number, m in enumerate((old, new)):
        os.utime(store.home / "models" / f"{m.name}.json", (1000 + number, 1000 + number))
    measured = store.home / "measured" / f"{old.digest[:32]}.openvino.int8.json"
    measured.parent.mkdir()
    measured.write_text("{}")
    third = write_encoder(tmp_path / "third", seed=3)
    budget = f"{old.size_bytes * 2 + 50}B"
    store.add(third, disk=budget, evict=True)
    assert list(store.models()) == ["old", "third"]


def test_a_card_that_cannot_be_served_is_refused_before_anything_is_fetched(store: Store) -> None:
    card = Card(name="acme/odd", source=Hub("acme/odd"), unservable="its weights are pickles")
    with pytest.raises(InvalidInput, match=r"its weights are pickles\. Another revision"):
        store.add(card)
    assert card_for("acme/odd@main", None, {"acme/odd": card}).unservable == ""


def test_what_is_kept_stays_kept_until_told_otherwise(store: Store, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "m")
    assert store.add(folder, keep=True).keep
    assert store.add(folder).keep
    assert Store(store.home).resolve("m").keep
    assert not store.add(folder, keep=False).keep


def test_a_record_without_the_newer_fields_is_read(store: Store, tmp_path: Path) -> None:
    store.add(write_encoder(tmp_path / "m"))
    path = store.home / "models" / "m.json"
    record = msgspec.json.decode(path.read_bytes())
    del record["keep"]
    path.write_bytes(msgspec.json.encode(record))
    assert not Store(store.home).resolve("m").keep
