"""`shoal add org/name` as a process, with the hub's real client over real HTTP, against a stand-in for the hub."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from shoal.catalog.store import Store
from shoal.testing.checkpoints import tiny_encoder
from shoal.testing.hub import HubStandIn, hub

WITHIN_S = 120
SIZE_BYTES = 26_000_000
BREAK_AFTER = 22_000_000


@pytest.fixture
def stand_in() -> Iterator[HubStandIn]:
    with hub() as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An encoder with things beside it that no model needs."""
    folder = tmp_path / "published"
    tiny_encoder(folder)
    weights = load_file(folder / "model.safetensors")
    weights["padding"] = np.arange(SIZE_BYTES // 4, dtype=np.int32)  # the client writes 10 MiB at a time
    save_file(weights, folder / "model.safetensors")
    (folder / "README.md").write_text("---\nlicense: apache-2.0\ntags:\n- made-up\n---\nA model.\n")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "modeling_own.py").write_text("raise SystemExit")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"\x08\x07")
    return folder


class Machine:
    """A home of its own for Shoal and for the hub's client."""

    def __init__(self, tmp_path: Path, url: str) -> None:
        self.store_home = tmp_path / "shoal"
        left_out = ("HF_", "SHOAL_", "HUGGING_FACE", "TRANSFORMERS_")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(left_out)} | {
            "HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "hf"), "SHOAL_HOME": str(self.store_home),
            "NO_PROXY": "127.0.0.1,localhost",
        }  # fmt: skip

    def start(self, *words: str, **environment: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "shoal", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=self.environment | environment)

    def run(self, *words: str, **environment: str) -> tuple[int, str, str]:
        process = self.start(*words, **environment)
        out, err = process.communicate(timeout=WITHIN_S)
        return process.returncode, out, err

    @property
    def store(self) -> Store:
        return Store(self.store_home)


@pytest.fixture
def machine(tmp_path: Path, stand_in: HubStandIn) -> Machine:
    return Machine(tmp_path, stand_in.url)


def test_a_repository_that_no_card_knows_is_added_by_its_name_alone(
    machine: Machine, stand_in: HubStandIn, folder: Path
) -> None:
    repo = stand_in.publish("acme/finder", folder)
    code, out, err = machine.run("add", "acme/finder")
    assert (code, "encode" in out, "apache-2.0" in out) == (0, True, True), err
    model = machine.store.resolve("acme/finder")
    assert model.card.revision == repo.commit
    assert stand_in.fetched() == {path.relative_to(model.folder).as_posix() for path in files_in(model.folder)}
    assert not {"pytorch_model.bin", "modeling_own.py", "model.onnx"} & stand_in.fetched()
    assert (model.folder / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert not any((machine.store_home / "downloads").iterdir())


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_an_add_that_is_interrupted_says_that_it_can_go_on(
    machine: Machine, stand_in: HubStandIn, folder: Path
) -> None:
    stand_in.publish("acme/finder", folder)
    stand_in.hang_after = BREAK_AFTER
    process = machine.start("add", "acme/finder")
    assert stand_in.hangs.wait(WITHIN_S)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "interrupted: nothing was added; add it again to go on"
    assert "acme/finder" not in machine.store.models()


def test_an_add_that_is_killed_in_the_middle_of_a_file_goes_on_there(
    machine: Machine, stand_in: HubStandIn, folder: Path
) -> None:
    stand_in.publish("acme/finder", folder)
    stand_in.hang_after = BREAK_AFTER
    adding = machine.start("add", "acme/finder")
    assert stand_in.hangs.wait(WITHIN_S)
    part = grown(machine.store_home / "downloads", "model.safetensors.part")
    adding.send_signal(signal.SIGKILL)
    adding.communicate()
    had = part.stat().st_size
    assert machine.store.models() == {}
    stand_in.release.set()
    stand_in.asked.clear()
    code, _, err = machine.run("add", "acme/finder")
    assert code == 0, err
    ranges = [asked for _, path, asked in stand_in.asked if path.endswith("model.safetensors") and asked]
    assert set(ranges) == {f"bytes={had}-"}
    assert machine.store.verify(machine.store.resolve("acme/finder"))


def grown(folder: Path, name: str) -> Path:
    """The file of that name, once something was written to it."""
    until = time.monotonic() + WITHIN_S
    while time.monotonic() < until:
        if found := [path for path in folder.rglob(name) if path.stat().st_size]:
            return found[0]
    raise AssertionError(f"{name} never grew")


def test_a_connection_that_breaks_is_taken_up_where_it_broke(
    machine: Machine, stand_in: HubStandIn, folder: Path
) -> None:
    stand_in.publish("acme/finder", folder)
    stand_in.break_after = BREAK_AFTER
    code, _, err = machine.run("add", "acme/finder")
    assert code == 0, err
    ranges = [asked for _, path, asked in stand_in.asked if path.endswith("model.safetensors") and asked]
    assert ranges
    assert all(int(asked[6:-1]) > 0 for asked in ranges)
    kept = machine.store.resolve("acme/finder").folder / "model.safetensors"
    assert kept.read_bytes() == (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_that_is_not_what_the_hub_listed_is_refused(
    machine: Machine, stand_in: HubStandIn, folder: Path, name: str
) -> None:
    repo = stand_in.publish("acme/finder", folder)
    stand_in.forged[name] = repo.files[name][:-1] + b"?"
    code, _, err = machine.run("add", "acme/finder")
    assert code == 1
    assert f"{name} of acme/finder is not what the hub says" in err
    assert machine.store.models() == {}
    stand_in.forged.clear()
    assert machine.run("add", "acme/finder")[0] == 0


def test_a_private_repository_says_which_token_and_comes_with_it(
    machine: Machine, stand_in: HubStandIn, folder: Path
) -> None:
    stand_in.publish("acme/secret", folder, token="hf_right")
    for token in ({}, {"HF_TOKEN": "hf_wrong"}):
        code, _, err = machine.run("add", "acme/secret", **token)
        assert (code, "HF_TOKEN" in err, "code: MODEL_NOT_FOUND" in err) == (1, True, True)
        assert "hf_wrong" not in err
    assert machine.run("add", "acme/secret", HF_TOKEN="hf_right")[0] == 0


def test_a_gated_repository_says_where_to_accept_its_conditions(
    machine: Machine, stand_in: HubStandIn, folder: Path
) -> None:
    stand_in.publish("acme/gated", folder, gated=True)
    code, _, err = machine.run("add", "acme/gated")
    assert (code, f"{stand_in.url}/acme/gated" in err, "HF_TOKEN" in err) == (1, True, True), err


def test_a_version_is_fetched_and_then_asked_for_by_its_name(
    machine: Machine, stand_in: HubStandIn, folder: Path
) -> None:
    repo = stand_in.publish("acme/finder", folder)
    repo.tags.add("v1.0")
    code, _, err = machine.run("add", "acme/finder@v9")
    assert (code, "no revision 'v9'" in err) == (1, True)
    assert machine.run("add", "acme/finder@v1.0")[0] == 0
    for version in ("v1.0", repo.commit, repo.commit[:8]):
        assert machine.store.resolve(f"acme/finder@{version}").name == "acme/finder"


def test_a_name_that_neither_a_card_nor_the_hub_knows_is_told_a_near_one(machine: Machine) -> None:
    code, _, err = machine.run("add", "sentence-transformer/all-MiniLM-L6-v2")
    assert (code, "Did you mean sentence-transformers/all-MiniLM-L6-v2?" in err) == (1, True), err


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model.safetensors": None}, "pickles"),
        ({"config.json": b'{"model_type": "bert", "auto_map": {"AutoModel": "own.Model"}}'}, "code of its own"),
        ({"config.json": b'{"model_type": "mamba", "hidden_size": 8}'}, "'mamba' are not known"),
        ({"adapter_config.json": b"{}"}, "LoRA adapter"),
    ],
)
def test_what_cannot_be_served_is_refused_before_its_weights_are_fetched(
    machine: Machine, stand_in: HubStandIn, folder: Path, change: dict[str, bytes | None], reason: str
) -> None:
    (folder / "onnx" / "model.onnx").unlink()
    repo = stand_in.publish("acme/odd", folder)
    repo.files = {name: data for name, data in (repo.files | change).items() if data is not None}
    code, _, err = machine.run("add", "acme/odd")
    assert (code, reason in err) == (1, True), err
    assert "model.safetensors" not in stand_in.fetched()


def test_offline_takes_what_the_hubs_cache_has_and_asks_nobody(
    machine: Machine, stand_in: HubStandIn, folder: Path
) -> None:
    stand_in.publish("acme/finder", folder)
    for setting in ("SHOAL_OFFLINE", "HF_HUB_OFFLINE"):
        code, _, err = machine.run("add", "acme/finder", **{setting: "1"})
        assert (code, f"{setting} is set" in err) == (1, True), err
    assert stand_in.asked == []
    download = "from huggingface_hub import snapshot_download; snapshot_download('acme/finder')"
    subprocess.run([sys.executable, "-c", download], env=machine.environment, check=True, timeout=WITHIN_S)
    stand_in.asked.clear()
    code, _, err = machine.run("add", "acme/finder", SHOAL_OFFLINE="1")
    assert (code, stand_in.asked) == (0, []), err
    assert machine.store.resolve("acme/finder").card.revision == stand_in.repos["acme/finder"].commit


def test_what_the_hubs_cache_has_is_not_fetched_again(
    machine: Machine, stand_in: HubStandIn, folder: Path
) -> None:
    stand_in.publish("acme/finder", folder)
    download = "from huggingface_hub import hf_hub_download; hf_hub_download('acme/finder', 'model.safetensors')"
    subprocess.run([sys.executable, "-c", download], env=machine.environment, check=True, timeout=WITHIN_S)
    stand_in.asked.clear()
    assert machine.run("add", "acme/finder")[0] == 0
    assert "model.safetensors" not in stand_in.fetched()


def test_a_hub_that_cannot_be_reached_is_named(machine: Machine) -> None:
    code, _, err = machine.run("add", "acme/finder", HF_ENDPOINT="http://127.0.0.1:1")
    assert (code, "http://127.0.0.1:1 could not be asked" in err, "HF_ENDPOINT" in err) == (1, True, True), err


def test_a_disk_budget_refuses_before_the_weights_are_fetched(
    machine: Machine, stand_in: HubStandIn, folder: Path
) -> None:
    stand_in.publish("acme/finder", folder)
    code, _, err = machine.run("add", "acme/finder", SHOAL_DISK="20MB")
    assert (code, "over the budget of 20.0 MB" in err, "SHOAL_DISK" in err) == (1, True, True), err
    assert stand_in.fetched() == set()


def test_of_several_shards_those_that_came_are_not_fetched_again(
    machine: Machine, stand_in: HubStandIn, folder: Path
) -> None:
    weights = load_file(folder / "model.safetensors")
    first, second = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
    save_file({"padding": weights.pop("padding")}, folder / first)
    save_file(weights, folder / second)
    (folder / "model.safetensors").unlink()
    names = {"padding": first} | dict.fromkeys(weights, second)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    repo = stand_in.publish("acme/large", folder)
    stand_in.forged[second] = repo.files[second][:-1] + b"?"
    assert machine.run("add", "acme/large")[0] == 1
    assert first in stand_in.fetched()
    stand_in.forged.clear()
    stand_in.asked.clear()
    code, _, err = machine.run("add", "acme/large")
    assert code == 0, err
    assert second in stand_in.fetched()
    assert first not in stand_in.fetched()
    assert {path.name for path in files_in(machine.store.resolve("acme/large").folder)} >= {first, second}


def test_what_came_of_another_commit_is_not_mixed_in(machine: Machine, stand_in: HubStandIn, folder: Path) -> None:
    repo = stand_in.publish("acme/finder", folder)
    stand_in.forged["model.safetensors"] = repo.files["model.safetensors"][:-1] + b"?"
    assert machine.run("add", "acme/finder")[0] == 1
    stand_in.forged.clear()
    (folder / "README.md").write_text("---\nlicense: mit\n---\nAnother.\n")
    newer = stand_in.publish("acme/finder", folder)
    assert newer.commit != repo.commit
    assert machine.run("add", "acme/finder")[0] == 0
    model = machine.store.resolve("acme/finder")
    assert (model.card.revision, model.card.licence) == (newer.commit, "mit")


def test_a_token_that_is_not_valid_is_told_so(machine: Machine, stand_in: HubStandIn, folder: Path) -> None:
    stand_in.publish("acme/finder", folder)
    stand_in.bad_tokens.add("hf_expired")
    code, _, err = machine.run("add", "acme/finder", HF_TOKEN="hf_expired")
    assert (code, "does not take the access token that is set (HF_TOKEN)" in err) == (1, True), err


@pytest.mark.parametrize("commit", ["../../../precious/x", "", None, "main"])
def test_a_hub_that_names_a_folder_instead_of_a_commit_is_refused(
    machine: Machine, stand_in: HubStandIn, folder: Path, tmp_path: Path, commit: str | None
) -> None:
    (tmp_path / "precious").mkdir()
    stand_in.publish("acme/finder", folder)
    stand_in.told = {"sha": commit}
    code, _, err = machine.run("add", "acme/finder")
    assert (code, "with no commit" in err) == (1, True), err
    assert list((tmp_path / "precious").iterdir()) == []
    assert not (machine.store_home / "downloads").exists()


def test_no_more_of_a_file_is_taken_than_the_hub_listed(
    machine: Machine, stand_in: HubStandIn, folder: Path
) -> None:
    stand_in.publish("acme/finder", folder)
    stand_in.endless.add("model.safetensors")
    code, _, err = machine.run("add", "acme/finder")
    assert (code, "and more came" in err) == (1, True), err
    assert not list((machine.store_home / "downloads").rglob("model.safetensors*"))


def test_of_a_file_whose_size_is_not_listed_the_budget_counts_what_comes(
    machine: Machine, stand_in: HubStandIn, folder: Path
) -> None:
    repo = stand_in.publish("acme/finder", folder)
    stand_in.told = {"siblings": [{"rfilename": name} for name in repo.files]}
    assert machine.run("add", "acme/finder")[0] == 0
    code, _, err = machine.run("add", "acme/finder", "--name", "acme/second", "--disk", "27MB")
    assert (code, "over the budget" in err) == (1, True), err


def test_the_hub_is_asked_for_the_model_and_nothing_else(
    machine: Machine, stand_in: HubStandIn, folder: Path
) -> None:
    stand_in.publish("acme/finder", folder)
    assert machine.run("add", "acme/finder")[0] == 0
    assert {path for _, path, _ in stand_in.asked if "acme/finder" not in path} == set()
