"""`shoal doctor`: each check by what it is given, and the whole on this machine."""

import json
import socket
from pathlib import Path

import pytest
from model_folders import write_encoder, write_json, write_scorer

from shoal import cli
from shoal.catalog.store import Store
from shoal.cli import _checks as checks
from shoal.node import devices

GB = 1e9


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    return Store()


def run_doctor(capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor"])
    assert isinstance(ended.value.code, int)
    return ended.value.code, capsys.readouterr().out


def test_a_machine_with_models_passes(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store.add(write_encoder(tmp_path / "e"))
    store.add(write_scorer(tmp_path / "s"))
    code, out = run_doctor(capsys)
    assert code == 0
    assert "fail" not in out
    assert f"store {store.home}: 2 models, every file as added" in out
    assert "onnxruntime 1." in out


def test_a_changed_file_fails_and_says_what_to_do(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = store.add(write_encoder(tmp_path / "e"))
    (model.folder / "config.json").write_text("{}")
    (store.home / "models" / "broken.json").write_text("{")
    code, out = run_doctor(capsys)
    assert code == 1
    assert f"fail  e: its files in {model.folder} were changed\n      → shoal rm e, then add it again" in out
    assert "fail  broken: its record" in out


def test_missing_models_are_a_warning_with_the_command_that_brings_them(store: Store) -> None:
    store.add("shoal/virtual-encoder")
    findings = checks.check_models(store)
    assert [finding.what for finding in findings] == ["no model that can encode", "no model that can score"]
    assert [finding.todo for finding in findings] == [
        "shoal add sentence-transformers/all-MiniLM-L6-v2",
        "shoal add cross-encoder/ms-marco-MiniLM-L-12-v2",
    ]
    assert {finding.level for finding in findings} == {"warn"}


def test_a_model_whose_runtime_is_not_installed_is_a_warning_with_how_to_get_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_encoder(tmp_path / "e")
    settings = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", settings | {"model_type": "electra", "architectures": ["ElectraModel"]})
    store.add(folder)
    assert checks.check_runtimes(store) == []
    monkeypatch.setattr(devices, "has_pytorch", lambda: False)
    [finding] = checks.check_runtimes(store)
    assert finding.level == "warn"
    assert finding.what == "e cannot be served here"
    assert "pytorch, which is not installed here: pip install 'shoal[pytorch]'" in finding.todo


@pytest.mark.parametrize(("gigabytes", "level"), [(0.1, "fail"), (1, "warn"), (50, "ok")])
def test_disk_is_judged_by_what_is_free(gigabytes: float, level: str) -> None:
    finding = checks.check_disk(gigabytes * GB, Path("/home/x"))
    assert finding.level == level
    assert level == "ok" or "SHOAL_HOME" in finding.todo


@pytest.mark.parametrize(("gigabytes", "level"), [(0.3, "fail"), (1, "warn"), (8, "ok"), (None, "warn")])
def test_memory_is_judged_by_what_is_available(gigabytes: float | None, level: str) -> None:
    assert checks.check_memory(None if gigabytes is None else gigabytes * GB).level == level


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"avx2", "avx512_bf16"}, "run in bf16"),
        ({"avx2", "amx_bf16"}, "run in bf16"),
        ({"asimd", "bf16"}, "run in bf16"),
        ({"avx2"}, "fp32"),
        (None, "not known"),
    ],
)
def test_the_cpu_is_asked_for_bf16(flags: set[str] | None, words: str) -> None:
    finding = checks.check_cpu(flags)
    assert words in finding.what
    assert finding.level == "ok"


def test_memory_is_what_the_kernel_has_and_the_container_allows(tmp_path: Path) -> None:
    assert checks.available_memory_bytes(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    2000000 kB\n")
    assert checks.available_memory_bytes(tmp_path) == 2_048_000_000
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("600000000\n")
    assert checks.available_memory_bytes(tmp_path) == 2_048_000_000
    (group / "memory.max").write_text("1000000000\n")
    assert checks.available_memory_bytes(tmp_path) == 400_000_000


def test_flags_are_read_as_x86_and_as_arm_write_them(tmp_path: Path) -> None:
    assert checks.cpu_flags(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor: 0\nflags\t\t: fpu avx2 avx512_bf16\n")
    assert checks.cpu_flags(tmp_path) is not None
    assert {"avx2", "avx512_bf16"} <= (checks.cpu_flags(tmp_path) or set())
    (tmp_path / "proc/cpuinfo").write_text("Features\t: fp asimd bf16\n")
    assert "bf16" in (checks.cpu_flags(tmp_path) or set())


def test_an_engine_that_is_not_installed_fails_with_how_to_get_it() -> None:
    finding = checks.check_engine("no_such_engine", "no-such-engine>=1")
    assert finding.level == "fail"
    assert "No module named 'no_such_engine'" in finding.what
    assert finding.todo == "pip install 'no-such-engine>=1'"


def test_an_engine_that_kills_its_process_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deadly.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    finding = checks.check_engine("deadly", "deadly")
    assert finding.level == "fail"
    assert "ended with -4" in finding.what


def test_a_port_in_use_is_a_warning(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert checks.check_port(port).level == "warn"
    assert checks.check_port(port).level == "ok"


def test_the_disk_of_a_home_not_made_yet_is_the_one_it_will_be_on(tmp_path: Path) -> None:
    assert checks.free_disk_bytes(tmp_path / "not" / "yet") > 0


def test_a_budget_is_compared_with_what_models_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "home")
    store.add("shoal/virtual-encoder")
    assert checks.check_budget(store) == []
    monkeypatch.setenv("SHOAL_DISK", "1GB")
    assert [(f.level, "of 1.0 GB" in f.what) for f in checks.check_budget(store)] == [("ok", True)]
    monkeypatch.setenv("SHOAL_DISK", "1B")
    assert [(f.level, "raise SHOAL_DISK" in f.todo) for f in checks.check_budget(store)] == [("warn", True)]
    monkeypatch.setenv("SHOAL_DISK", "much")
    assert [f.level for f in checks.check_budget(store)] == ["fail"]


def test_what_no_model_needs_is_pointed_out(tmp_path: Path) -> None:
    store = Store(tmp_path / "home")
    store.add("shoal/virtual-encoder")
    (store.home / "downloads").mkdir()
    (store.home / "downloads" / "half").write_bytes(bytes(20_000_000))
    [finding] = checks.check_budget(store)
    assert (finding.level, finding.todo, "20.0 MB under" in finding.what) == ("warn", "shoal gc", True)
