"""Which folders can be pushed, and which manifests are taken: one rule for both."""

import hashlib
import os
import socket

import pytest

from shoal.catalog.artifacts import digest_of, size_of
from shoal.catalog.folder import fetch
from shoal.catalog.manifests import File, Limits, Manifest, check_manifest, read_folder
from shoal.protocol.errors import InvalidInput, PayloadTooLarge

MODEL = {
    "config.json": b"{}",
    "tokenizer.json": b'{"model": {}}',
    "model.safetensors": b"weights",
    "README.md": b"",
    "LICENSE": b"as you like",
    "1_Pooling/config.json": b"{}",
}
ADAPTER = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"factors", "README.md": b"of whom"}


def silent(what, done, total):
    pass


def folder_of(path, files: dict[str, bytes]):
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def file(path: str, data: bytes = b"x", **more) -> File:
    return File(**({"path": path, "sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)} | more))


def manifest_of(*files: File) -> Manifest:
    whole = [file(path, data) for path, data in MODEL.items()]
    return Manifest((*whole, *files))


@pytest.mark.parametrize("files", [MODEL, ADAPTER])
def test_a_folder_is_read_with_every_file_and_taken(tmp_path, files):
    read = read_folder(folder_of(tmp_path, files), silent)
    assert {one.path: one.sha256 for one in read.manifest.files} == {
        path: hashlib.sha256(data).hexdigest() for path, data in files.items()
    }
    assert read.manifest.digest == digest_of(tmp_path, silent)
    assert read.manifest.size_bytes == size_of(tmp_path)
    assert all(read.places[path].read_bytes() == data for path, data in files.items())
    check_manifest(read.manifest, Limits())


def test_what_is_no_models_is_left_out(tmp_path):
    extra = {
        "pytorch_model.bin": b"p",
        "train.py": b"p",
        ".git/config": b"",
        "notes.docx": b"",
        "checkpoint-10/model.safetensors": b"",
        "optimizer.pt": b"",
    }
    assert set(read_folder(folder_of(tmp_path, MODEL | extra), silent).places) == set(MODEL)


def test_files_get_the_names_that_the_store_gives_them(tmp_path):
    files = {"config.json": b"{}", "minilm-v2.safetensors": b"weights"}
    read = read_folder(folder_of(tmp_path, files), silent)
    assert set(read.places) == {"config.json", "model.safetensors"}
    assert read.places["model.safetensors"] == tmp_path / "minilm-v2.safetensors"
    check_manifest(read.manifest, Limits())


def test_what_is_pushed_has_the_digest_of_what_is_added(tmp_path):
    """So that a model is the same one, whichever way it came."""
    from shoal.catalog import Folder, Taking

    folder = folder_of(tmp_path / "of", MODEL | {"junk.bin": b"x"})
    into = tmp_path / "into"
    into.mkdir()
    fetch(Folder(path=str(folder)), into, Taking(silent, lambda size: None, lambda: None, tmp_path / "begun"))
    assert read_folder(folder, silent).manifest.digest == digest_of(into, silent)


@pytest.mark.parametrize("pickle", ["pytorch_model.bin", "model.pt", "model.pkl", "model.ckpt", "model.pth"])
def test_a_folder_with_pickles_only_is_refused_with_what_to_do(tmp_path, pickle):
    with pytest.raises(InvalidInput, match="safetensors"):
        read_folder(folder_of(tmp_path, {"config.json": b"{}", pickle: b"x"}), silent)
    with pytest.raises(InvalidInput, match="safetensors"):
        read_folder(folder_of(tmp_path, {"adapter_config.json": b"{}", "adapter_model.bin": b"x"}), silent)


def test_an_empty_or_absent_folder_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="no weights"):
        read_folder(tmp_path, silent)
    with pytest.raises(InvalidInput, match="no folder"):
        read_folder(tmp_path / "absent", silent)
    with pytest.raises(InvalidInput, match="no folder"):
        read_folder(folder_of(tmp_path, MODEL) / "config.json", silent)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "1_Pooling/config.json", "README.md"])
@pytest.mark.parametrize("where", ["inside", "outside", "nowhere"])
def test_a_link_is_refused_wherever_it_leads(tmp_path, name, where):
    folder = folder_of(tmp_path / "model", MODEL)
    targets = {"inside": folder / "tokenizer.json", "outside": tmp_path / "secret", "nowhere": tmp_path / "gone"}
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / name).unlink()
    (folder / name).symlink_to(targets[where])
    with pytest.raises(InvalidInput, match="is a link"):
        read_folder(folder, silent)


def test_a_folder_that_is_a_link_is_refused(tmp_path):
    folder = folder_of(tmp_path / "model", MODEL)
    (folder / "1_Pooling" / "config.json").unlink()
    (folder / "1_Pooling").rmdir()
    (folder / "1_Pooling").symlink_to(folder_of(tmp_path / "elsewhere", {"config.json": b"secret"}))
    with pytest.raises(InvalidInput, match="link"):
        read_folder(folder, silent)


def test_the_pushed_folder_itself_may_be_reached_by_a_link(tmp_path):
    (tmp_path / "latest").symlink_to(folder_of(tmp_path / "model", MODEL))
    assert len(read_folder(tmp_path / "latest", silent).places) == len(MODEL)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_what_is_no_plain_file_is_refused_and_not_waited_for(tmp_path, name):
    folder = folder_of(tmp_path / "model", MODEL)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(InvalidInput, match="no plain file"):
        read_folder(folder, silent)
    (folder / name).unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / name))
        with pytest.raises(InvalidInput, match="no plain file"):
            read_folder(folder, silent)


def test_a_folder_over_a_limit_is_refused_before_it_is_read(tmp_path):
    folder = folder_of(tmp_path, MODEL)
    with (folder / "model.safetensors").open("r+b") as weights:
        weights.truncate(10**12)
    with pytest.raises(PayloadTooLarge, match="--max-artifact-bytes"):
        read_folder(folder, silent)
    with pytest.raises(PayloadTooLarge, match="--max-artifact-files"):
        read_folder(folder, silent, Limits(artifact_files=3))


@pytest.mark.parametrize(
    "path",
    [
        "../config.json", "/etc/config.json", "a/../config.json", "./config.json", "a//config.json", "", "/", ".",
        "..", "config.json/", " /config.json", "a\\config.json", "config\0.json", "config\n.json", "c\u0301.json",
        "config.json\u202e", "x" * 500 + ".json", "\ud800.json", "C:/config.json/..",
    ],
)  # fmt: skip
def test_a_path_that_is_not_plainly_relative_is_refused(path):
    with pytest.raises(InvalidInput):
        check_manifest(manifest_of(file(path)), Limits())


@pytest.mark.parametrize("path", ["config.json", "Config.JSON", "README.MD/config.json", "1_pooling/Config.json"])
def test_two_files_are_never_one_on_any_disk(path):
    with pytest.raises(InvalidInput):
        check_manifest(manifest_of(file(path)), Limits())


@pytest.mark.parametrize(
    "path",
    ["pytorch_model.bin", "code.py", "a/b/c.json", ".hidden", "extra/model.safetensors", "model-2.safetensors"],
)
def test_a_file_that_no_model_needs_is_refused(path):
    with pytest.raises(InvalidInput):
        check_manifest(manifest_of(file(path)), Limits())


def test_weights_have_the_name_that_the_store_gives_them():
    with pytest.raises(InvalidInput, match="none of the files"):
        check_manifest(Manifest((file("config.json"), file("my-weights.safetensors"))), Limits())


@pytest.mark.parametrize(
    "lie",
    [
        {"sha256": "x"},
        {"sha256": "A" * 64},
        {"sha256": "a" * 65},
        {"sha256": "../" + "a" * 61},
        {"size_bytes": 0},
        {"size_bytes": -1},
        {"sha256": hashlib.sha256().hexdigest()},
    ],
)
def test_a_hash_or_a_size_that_cannot_be_is_refused(lie):
    with pytest.raises(InvalidInput):
        check_manifest(manifest_of(file("special_tokens_map.json", **lie)), Limits())


def test_one_content_has_one_size():
    same = hashlib.sha256(b"{}").hexdigest()
    check_manifest(manifest_of(file("vocab.json", b"{}")), Limits())
    with pytest.raises(InvalidInput, match="3 bytes"):
        check_manifest(manifest_of(file("vocab.json", sha256=same, size_bytes=3)), Limits())


def test_a_manifest_over_a_limit_or_of_nothing_is_refused():
    check_manifest(manifest_of(), Limits(artifact_files=len(MODEL)))
    with pytest.raises(PayloadTooLarge, match=r"7, over the limit of 6; --max-artifact-files"):
        check_manifest(manifest_of(file("vocab.txt")), Limits(artifact_files=6))
    total = sum(map(len, MODEL.values()))
    check_manifest(manifest_of(), Limits(artifact_bytes=total))
    with pytest.raises(PayloadTooLarge, match="--max-artifact-bytes"):
        check_manifest(manifest_of(), Limits(artifact_bytes=total - 1))
    with pytest.raises(InvalidInput):
        check_manifest(Manifest(()), Limits())
