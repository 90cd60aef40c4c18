"""The store on a real disk, with real processes where more than one takes part."""

import fcntl
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from model_folders import write_encoder, write_json, write_plain, write_scorer

from shoal.catalog import Card, Folder, Model
from shoal.catalog.artifacts import need_space
from shoal.catalog.store import Store
from shoal.protocol.errors import InvalidInput, ModelNotFound, ResourceExhausted

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def artifacts_of(store: Store) -> set[str]:
    return {path.name for path in (store.home / "artifacts").iterdir()}


def test_a_folder_is_copied_read_and_found_again_by_another_store(store: Store, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "my-finetune")
    added = store.add(folder)
    assert added.name == "my-finetune"
    assert added.folder.is_relative_to(store.home)
    assert added.folder.name == added.digest
    assert added.size_bytes == sum((folder / name).stat().st_size for name in files_in(folder))
    assert files_in(added.folder) == files_in(folder)
    assert Store(store.home).resolve("my-finetune") == added
    assert store.verify(added)


def test_only_what_a_model_needs_is_copied(store: Store, tmp_path: Path) -> None:
    folder = write_plain(tmp_path / "m")
    for name in ("pytorch_model.bin", "modeling.py", "train.csv", "run.sh", ".secret", "checkpoint-5/config.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")
    kept = {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"}
    assert files_in(store.add(folder).folder) == kept


def test_the_same_files_have_the_same_digest_wherever_they_come_from(store: Store, tmp_path: Path) -> None:
    one = store.add(write_encoder(tmp_path / "a"))
    two = store.add(write_encoder(tmp_path / "b"), name="org/b")
    assert one.digest == two.digest
    assert store.add(write_encoder(tmp_path / "c", seed=1)).digest != one.digest
    store.remove("a")
    assert store.verify(store.resolve("org/b"))


def test_adding_again_changes_nothing(store: Store, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "m")
    first = store.add(folder)
    assert store.add(folder) == first
    assert artifacts_of(store) == {first.digest}
    assert list((store.home / "staging").iterdir()) == []


def test_a_changed_folder_replaces_its_model_and_the_old_files_go_with_the_next_change(
    store: Store, tmp_path: Path
) -> None:
    old = store.add(write_encoder(tmp_path / "m"))
    new = store.add(write_encoder(tmp_path / "m", seed=7))
    assert store.resolve("m").digest == new.digest != old.digest
    store.add("shoal/virtual-encoder")
    assert not old.folder.exists()
    assert new.folder.exists()


def test_removing_forgets_the_model_and_deletes_its_files(store: Store, tmp_path: Path) -> None:
    model = store.add(write_encoder(tmp_path / "m"))
    store.remove("m")
    assert store.models() == {}
    assert not model.folder.exists()
    with pytest.raises(ModelNotFound):
        store.remove("m")


def test_a_stand_in_has_its_cost_as_its_only_file(store: Store) -> None:
    model = store.add("shoal/virtual-encoder")
    assert files_in(model.folder) == {"virtual.json"}
    assert model.facts.files == "none"


def test_two_models_added_by_one_store_are_seen_by_another_that_was_open(store: Store, tmp_path: Path) -> None:
    other = Store(store.home)
    assert other.refresh() is False
    store.add(write_encoder(tmp_path / "one"))
    assert other.models() == {}
    assert other.resolve("one").name == "one"
    store.add(write_scorer(tmp_path / "two"))
    assert other.refresh() is True
    assert other.refresh() is False
    assert list(other.models()) == ["one", "two"]
    store.remove("one")
    assert other.refresh() is True
    assert list(other.models()) == ["two"]


def test_a_slash_may_be_written_as_two_underscores(store: Store) -> None:
    store.add("shoal/virtual-encoder")
    assert store.resolve("shoal__virtual-encoder").name == "shoal/virtual-encoder"


def test_a_known_card_that_is_not_here_says_how_to_get_it(store: Store) -> None:
    for name in (MINILM, MINILM.replace("/", "__")):
        with pytest.raises(ModelNotFound, match=f"shoal add {MINILM}$") as caught:
            store.resolve(name)
        assert caught.value.detail == {"near": MINILM, "add": f"shoal add {MINILM}"}


def test_a_mistyped_name_is_told_the_near_one_and_how_to_get_it(store: Store) -> None:
    with pytest.raises(ModelNotFound, match=f"did you mean {MINILM}.*shoal add {MINILM}$"):
        store.resolve("all-minilm-l6-v2")
    store.add("shoal/virtual-encoder")
    with pytest.raises(ModelNotFound, match=r"did you mean shoal/virtual-encoder\?$"):
        store.resolve("shoal/virtual-encode")


def test_a_name_like_no_other_is_told_where_to_look_and_echoed_in_part(store: Store) -> None:
    with pytest.raises(ModelNotFound, match="shoal models --all") as caught:
        store.resolve("z" * 10_000)
    assert len(caught.value.message) < 250


def test_the_default_is_the_cards_own_then_the_first_by_name_and_a_stand_in_last(
    store: Store, tmp_path: Path
) -> None:
    with pytest.raises(ModelNotFound, match="no model here can encode"):
        store.default_model("encode")
    store.add("shoal/virtual-encoder")
    assert store.default_model("encode").name == "shoal/virtual-encoder"
    store.add(write_encoder(tmp_path / "zebra"))
    assert store.default_model("encode").name == "zebra"
    store.add(write_encoder(tmp_path / "yak"))
    assert store.default_model("encode").name == "yak"
    store.add(Card(name="zz", default=True, source=Folder(path=str(tmp_path / "zebra"))))
    assert store.default_model("encode").name == "zz"
    with pytest.raises(ModelNotFound, match="can score"):
        store.default_model("score")
    assert store.default_model("tokenize").name == "zz"


def test_the_default_gives_the_kind_asked_for_and_its_score_needs_no_label(store: Store) -> None:
    store.add("shoal/virtual-labels")
    store.add("shoal/virtual-reranker")
    store.add("shoal/virtual-encoder")
    assert store.default_model("score").name == "shoal/virtual-reranker"
    with pytest.raises(ModelNotFound, match="no model here gives sparse vectors; `shoal models --kind sparse`"):
        store.default_model("encode", "sparse")
    store.add("shoal/virtual-every-kind")
    assert store.default_model("encode", "sparse").name == "shoal/virtual-every-kind"
    assert store.default_model("encode", "dense").name == "shoal/virtual-encoder"


def test_home_is_the_argument_then_the_setting_then_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "set"))
    assert Store(tmp_path / "given").home == tmp_path / "given"
    assert Store().home == tmp_path / "set"
    monkeypatch.setenv("SHOAL_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Store().home == tmp_path / ".cache" / "shoal"
    assert list(tmp_path.iterdir()) == []


def test_a_known_models_name_is_not_given_to_a_folder(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="another name"):
        store.add(write_encoder(tmp_path / "m"), name=MINILM)


def test_what_looks_like_a_path_is_told_that_there_is_no_folder(store: Store, tmp_path: Path) -> None:
    for path in ("./nowhere", str(tmp_path / "nowhere"), tmp_path / "nowhere", "~/no/where"):
        with pytest.raises(InvalidInput, match="there is no folder"):
            store.add(path)


def nothing_was_kept(store: Store) -> bool:
    return store.models() == {} and not (store.home / "artifacts").exists()


def test_a_link_out_of_the_folder_is_refused(store: Store, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "m")
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    (folder / "extra.json").symlink_to(secret)
    with pytest.raises(InvalidInput, match=r"extra\.json is a link to a file outside"):
        store.add(folder)
    assert nothing_was_kept(store)


def test_a_link_inside_the_folder_is_copied_as_the_file_it_means(store: Store, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "blob")
    (folder / "model.safetensors").symlink_to("blob")
    kept = store.add(folder).folder / "model.safetensors"
    assert kept.is_file()
    assert not kept.is_symlink()


def test_a_snapshot_in_a_hubs_cache_may_link_to_its_own_blobs_only(store: Store, tmp_path: Path) -> None:
    hub = tmp_path / "models--org--m"
    snapshot = write_encoder(hub / "snapshots" / "abc123")
    (hub / "blobs").mkdir()
    (snapshot / "model.safetensors").rename(hub / "blobs" / "f00")
    (snapshot / "model.safetensors").symlink_to("../../blobs/f00")
    assert store.add(snapshot, name="org/m").facts.files == "safetensors"
    write_json(tmp_path / "models--org--other" / "blobs" / "bar", {})
    (snapshot / "extra.json").symlink_to("../../../models--org--other/blobs/bar")
    with pytest.raises(InvalidInput, match="outside"):
        store.add(snapshot, name="org/m")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git lfs pull"),
        (b"", "not a safetensors file"),
        (b"PK\x03\x04" + b"x" * 100, "not a safetensors file"),
        (b"\xff" * 16, "not a safetensors file"),
        ((2).to_bytes(8, "little") + b"[]", "broken header"),
        ((20).to_bytes(8, "little") + b'{"w":{"dtype":"F32"}', "broken header"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(
    store: Store, tmp_path: Path, content: bytes, reason: str
) -> None:
    folder = write_encoder(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(InvalidInput, match=reason):
        store.add(folder)
    assert nothing_was_kept(store)


def test_weights_that_were_cut_short_are_refused_and_so_is_what_is_no_onnx(store: Store, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "m")
    whole = (folder / "model.safetensors").read_bytes()
    for content in (whole[:-1], whole + b"\0"):
        (folder / "model.safetensors").write_bytes(content)
        with pytest.raises(InvalidInput, match="cut short"):
            store.add(folder)
    (folder / "model.safetensors").unlink()
    (folder / "model.onnx").write_text("<html>not found</html>")
    with pytest.raises(InvalidInput, match="not an ONNX model"):
        store.add(folder)
    assert nothing_was_kept(store)


def test_changed_files_are_noticed_and_adding_again_mends_them(store: Store, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "m")
    for model in (store.add(folder), store.add("shoal/virtual-encoder")):
        victim = next(path for path in model.folder.iterdir() if path.is_file())
        victim.write_bytes(victim.read_bytes() + b" ")
        assert not store.verify(model)
        store.add(folder if model.name == "m" else model.name, name=model.name)
        assert store.verify(store.resolve(model.name))


def test_a_record_that_cannot_be_read_takes_nothing_else_with_it(store: Store, tmp_path: Path) -> None:
    model = store.add(write_encoder(tmp_path / "good"))
    gone = store.add(write_encoder(tmp_path / "gone", seed=3))
    for path in sorted(gone.folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    gone.folder.rmdir()
    (store.home / "models" / "org__bad.json").write_text('{"digest": "../../etc"}')
    fresh = Store(store.home)
    assert list(fresh.models()) == ["good"]
    assert set(fresh.problems) == {"org/bad", "gone"}
    fresh.add("shoal/virtual-encoder")
    assert fresh.verify(model)
    fresh.remove("org/bad")
    fresh.remove("gone")
    assert fresh.problems == {}
    assert fresh.verify(model)


def test_a_record_of_another_release_keeps_its_files(store: Store, tmp_path: Path) -> None:
    model = store.add(write_encoder(tmp_path / "m"))
    write_json(store.home / "models" / "m.json", {"digest": model.digest, "from": "the future"})
    store.add("shoal/virtual-encoder")
    assert store.verify(model)
    assert "m" in store.problems


def test_a_full_disk_is_refused_before_it_is_filled_and_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(ResourceExhausted, match="SHOAL_HOME") as caught:
        need_space(tmp_path, 10**18)
    assert caught.value.detail["size"] == 10**18


CRASH = """
import os, sys
from pathlib import Path
from shoal.catalog import records, store
def die(*_): os._exit(9)
if sys.argv[3] == "copying":
    report = lambda stage, done, total: stage == "copying" and die()
else:
    report, records.Records.write = store.silent, die
store.Store(Path(sys.argv[1])).add(sys.argv[2], report=report)
"""


@pytest.mark.parametrize("moment", ["copying", "recording"])
def test_a_crash_leaves_no_model_and_the_next_add_cleans_up(store: Store, tmp_path: Path, moment: str) -> None:
    folder = write_encoder(tmp_path / "m")
    command = [sys.executable, "-c", CRASH, str(store.home), str(folder), moment]
    assert subprocess.run(command, check=False).returncode == 9
    assert store.refresh() is False
    left = [*(store.home / "staging").iterdir(), *(store.home / "artifacts").glob("*")]
    assert left
    other = store.add("shoal/virtual-encoder")
    assert list((store.home / "staging").iterdir()) == []
    assert artifacts_of(store) == {other.digest}
    assert store.verify(store.add(folder))


def test_many_processes_that_add_the_same_model_at_once_all_get_it_and_it_is_there_once(
    store: Store, tmp_path: Path
) -> None:
    folder = write_encoder(tmp_path / "m")
    code = (
        "import sys; from pathlib import Path; from shoal.catalog.store import Store;"
        "print(Store(Path(sys.argv[1])).add(sys.argv[2]).digest)"
    )
    command = [sys.executable, "-c", code, str(store.home), str(folder)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    digests = {process.communicate(timeout=120)[0].strip() for process in running}
    assert [process.returncode for process in running] == [0] * 4
    assert len(digests) == 1
    assert artifacts_of(store) == digests
    assert list((store.home / "staging").iterdir()) == []


def test_an_add_waits_for_the_one_that_runs_and_says_so(store: Store) -> None:
    store.home.mkdir()
    waits = threading.Event()
    added: list[Model] = []

    def report(stage: str, done: int, total: int) -> None:
        if stage.startswith("waiting"):
            waits.set()

    adding = threading.Thread(target=lambda: added.append(store.add("shoal/virtual-encoder", report=report)))
    with (store.home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        adding.start()
        assert waits.wait(60)
        assert added == []
    adding.join(60)
    assert [model.name for model in added] == ["shoal/virtual-encoder"]


def test_looking_up_a_model_touches_no_disk(store: Store) -> None:
    store.add("shoal/virtual-encoder")
    store.home.rename(store.home.with_name("moved"))
    assert store.resolve("shoal/virtual-encoder").name in store.models()
