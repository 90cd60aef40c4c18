"""Models from archives: the usual layouts, and what an archive may not hold."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from model_folders import write_encoder

from shoal.catalog.store import Store
from shoal.protocol.errors import InvalidInput


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_encoder(tmp_path / "my-finetune")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


def pack(path: Path, folder: Path, top: str, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        archive.add(folder, top)
    return path


@pytest.mark.parametrize("top", ["my-finetune", ".", "./x", ""])
@pytest.mark.parametrize(("name", "mode"), [("m.tar", "w"), ("m.tar.gz", "w:gz"), ("m.tgz", "w:gz")])
def test_an_archive_gives_the_same_model_as_its_folder(
    store: Store, folder: Path, tmp_path: Path, name: str, mode: str, top: str
) -> None:
    model = store.add(pack(tmp_path / name, folder, top, mode))
    assert model.name == "m"
    assert model.digest == store.add(folder).digest


def test_a_changed_archive_replaces_its_model(store: Store, folder: Path, tmp_path: Path) -> None:
    old = store.add(pack(tmp_path / "m.tar", folder, "m"))
    write_encoder(folder, seed=4)
    assert store.add(pack(tmp_path / "m.tar", folder, "m")).digest != old.digest


def with_entry(path: Path, folder: Path, entry: tarfile.TarInfo, data: bytes = b"") -> Path:
    with tarfile.open(path, "w") as archive:
        archive.add(folder, "m")
        archive.addfile(entry, io.BytesIO(data))
    return path


def entry_of(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    return entry


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (entry_of("../escape.json"), "leads out of it"),
        (entry_of("m/../../escape.json"), "leads out of it"),
        (entry_of("/escape.json"), "leads out of it"),
        (entry_of("..\\escape.json"), "leads out of it"),
        (entry_of("m/extra.json", tarfile.SYMTYPE, "/etc/passwd"), "is a link"),
        (entry_of("m/extra.json", tarfile.LNKTYPE, "m/config.json"), "is a link"),
        (entry_of("m/extra.json", tarfile.CHRTYPE), "a device"),
        (entry_of("m/extra.json", tarfile.FIFOTYPE), "no plain file"),
    ],
)
def test_what_is_no_plain_file_inside_it_is_refused_before_anything_is_written(
    store: Store, folder: Path, tmp_path: Path, entry: tarfile.TarInfo, reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        store.add(with_entry(tmp_path / "m.tar", folder, entry))
    assert list(tmp_path.rglob("escape.json")) == []
    assert store.models() == {}
    assert not (store.home / "artifacts").exists()


def test_an_archive_that_would_fill_the_disk_is_refused(store: Store, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.tar.gz"
    entry = entry_of("m/vocab.txt")
    entry.size = 200 * 1024 * 1024
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(entry.tobuf())
        for _ in range(200):
            file.write(bytes(1024 * 1024))
    with pytest.raises(InvalidInput, match="200 times its size"):
        store.add(path)


def test_an_archive_of_very_many_entries_is_refused(store: Store, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "m.tar", "w") as archive:
        for number in range(10_001):
            archive.addfile(entry_of(f"m/{number}.json"))
    with pytest.raises(InvalidInput, match="over 10000 entries"):
        store.add(tmp_path / "m.tar")


def test_a_header_that_claims_to_be_huge_is_not_read(store: Store, tmp_path: Path) -> None:
    entry = entry_of("././@PaxHeader", tarfile.XHDTYPE)
    entry.size = 8 * 1024**3
    (tmp_path / "m.tar").write_bytes(entry.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
    with pytest.raises(InvalidInput, match=f"{8 * 1024**3} bytes"):
        store.add(tmp_path / "m.tar")


@pytest.mark.parametrize("cut", [0, 1, 100, 700, -600, -2000])
@pytest.mark.parametrize("name", ["m.tar", "m.tar.gz"])
def test_an_archive_that_was_cut_short_is_refused(
    store: Store, folder: Path, tmp_path: Path, name: str, cut: int
) -> None:
    path = pack(tmp_path / name, folder, "m", "w:gz" if name.endswith("gz") else "w")
    whole = path.read_bytes()
    ends_in_zeros = name == "m.tar" and cut < 0
    path.write_bytes(whole.rstrip(b"\0")[: cut - 1] if ends_in_zeros else whole[:cut])
    with pytest.raises(InvalidInput):
        store.add(path)
    assert store.models() == {}


def test_a_name_that_says_archive_and_holds_something_else_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "m.tar").write_text("<html>not found</html>" * 100)
    with pytest.raises(InvalidInput, match="broken, or no archive"):
        store.add(tmp_path / "m.tar")


def test_an_archive_that_holds_a_name_twice_is_refused(store: Store, folder: Path, tmp_path: Path) -> None:
    entry = entry_of("m/config.json")
    entry.size = 2
    with pytest.raises(InvalidInput, match=r"config\.json' twice"):
        store.add(with_entry(tmp_path / "m.tar", folder, entry, b"{}"))


def test_what_is_refused_leaves_nothing_in_the_store(store: Store, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(InvalidInput):
        store.add(folder)
    assert [path.name for path in store.home.rglob("*") if path.is_file()] == ["lock"]
