"""Files of pushed models on their way to a node's disk, from a registry in a folder."""

import asyncio
import shutil

import pytest

from shoal.catalog import Artifact, Card, Model
from shoal.catalog.artifacts import digest_of
from shoal.catalog.manifests import read_folder
from shoal.catalog.objects import Objects
from shoal.catalog.registry import Registry
from shoal.catalog.store import Store, silent
from shoal.node.fetching import Fetching, OnDisk
from shoal.protocol.errors import ModelLoadFailed, ModelNotFound, NotFound, ResourceExhausted
from shoal.testing.checkpoints import tiny_encoder


@pytest.fixture
def registry(tmp_path):
    return Registry(Objects.open(str(tmp_path / "objects")))


@pytest.fixture
async def model(tmp_path, registry):
    """Pushed, as a node hears of it."""
    facts = tiny_encoder(tmp_path / "m")
    read = read_folder(tmp_path / "m", silent)
    for file in read.manifest.files:
        await registry.receive(file, 0, read.places[file.path].read_bytes())
    digest = await registry.commit(read.manifest)
    card = Card(name="team/enc", source=Artifact(digest))
    folder = tmp_path / "nowhere"
    return Model(card=card, facts=facts, folder=folder, digest=digest, size_bytes=1, version=1)


def blobs(tmp_path):
    return sorted((tmp_path / "objects" / "blobs").rglob("*"), key=lambda path: path.stat().st_size)


async def test_what_many_ask_for_at_once_is_fetched_once_and_is_what_was_pushed(tmp_path, registry, model, caplog):
    caplog.set_level("INFO")
    store = Store(tmp_path / "home")
    fetching = Fetching(registry, store)
    folders = await asyncio.gather(*(fetching.ready(model) for _ in range(8)))
    assert set(folders) == {store.copies.path(model.digest)}
    assert digest_of(folders[0], silent) == model.digest
    assert sum("were fetched" in record.message for record in caplog.records) == 1
    shutil.rmtree(tmp_path / "objects")
    assert await fetching.ready(model) == folders[0]


async def test_two_nodes_of_one_disk_share_the_copy(tmp_path, registry, model):
    fetchings = [Fetching(registry, Store(tmp_path / "home")) for _ in range(3)]
    folders = await asyncio.gather(*(fetching.ready(model) for fetching in fetchings))
    assert len(set(folders)) == 1
    assert digest_of(folders[0], silent) == model.digest


async def test_an_attempt_that_ended_early_is_gone_on_with(tmp_path, registry, model):
    store = Store(tmp_path / "home")
    manifest = await registry.manifest(model.digest)
    largest = max(manifest.files, key=lambda file: file.size_bytes)
    shutil.copy(tmp_path / "m" / largest.path, store.copies.coming(model.digest) / largest.path)
    blob = next(path for path in blobs(tmp_path) if path.name == largest.sha256)
    blob.unlink()
    folder = await Fetching(registry, store).ready(model)
    assert digest_of(folder, silent) == model.digest


async def test_a_damaged_blob_is_refused_and_nothing_of_it_stands(tmp_path, registry, model):
    blob = blobs(tmp_path)[-1]
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.chmod(0o644)
    blob.write_bytes(data)
    store = Store(tmp_path / "home")
    with pytest.raises(ModelLoadFailed, match="damaged"):
        await Fetching(registry, store).ready(model)
    assert store.copies.all() == {}
    assert not store.copies.used(model.digest)


async def test_who_asked_may_leave_and_the_fetch_goes_on(tmp_path, registry, model):
    store = Store(tmp_path / "home")
    fetching = Fetching(registry, store)
    asking = asyncio.create_task(fetching.ready(model))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await fetching.ready(model) == store.copies.path(model.digest)


async def test_what_is_not_there_or_has_no_room_is_refused_with_the_reason(tmp_path, registry, model, monkeypatch):
    store = Store(tmp_path / "home")
    fetching = Fetching(registry, store)
    with pytest.raises(NotFound, match="no artifact"):
        await fetching.artifact("0" * 64)
    with pytest.raises(NotFound, match="no artifact's digest"):
        await fetching.artifact("../objects")
    monkeypatch.setenv("SHOAL_DISK", "1KB")
    with pytest.raises(ResourceExhausted, match="SHOAL_DISK"):
        await fetching.ready(model)


async def test_an_installed_models_files_serve_a_pushed_one_too(tmp_path, registry, model):
    store = Store(tmp_path / "home")
    installed = store.add(tmp_path / "m", name="m")
    assert installed.digest == model.digest
    assert await Fetching(registry, store).ready(model) == installed.folder
    assert store.copies.all() == {}
    assert await OnDisk().ready(installed) == installed.folder
    store.remove("m")
    with pytest.raises(ModelNotFound, match="are gone"):
        await OnDisk().ready(installed)
