"""What somebody sends and nobody makes a version of is bounded, on every object store."""

import os
import time
from pathlib import Path

import pytest

from contract.uploads import file_in, model, push, send, upload, weights
from shoal.catalog.chunks import SENDERS
from shoal.catalog.manifests import Limits
from shoal.catalog.objects import Objects
from shoal.catalog.registry import Registry
from shoal.catalog.sweeping import sweep
from shoal.catalog.unfinished import COUNTED_FOR_S, FULL_FOR_S, SWEPT_OLDER_S, Unfinished
from shoal.protocol.errors import ResourceExhausted

LIMIT = 20_000


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def make_old(folder: Path) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - SWEPT_OLDER_S - 60,) * 2)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def small(objects_url):
    return Registry(Objects.open(objects_url), Limits(unfinished_bytes=LIMIT))


async def test_chunks_and_files_of_no_version_are_counted_by_every_gateway(small, objects_url, clock):
    begun, contents = model(weights(9000))
    await send(small, file_in(begun), contents[file_in(begun).sha256], 9000)  # a file of no model
    other, parts = model(weights(9000))
    await small.receive(file_in(other), 0, parts[file_in(other).sha256][:8000], "somebody")
    unfinished = Unfinished(Registry(Objects.open(objects_url), small.limits), clock)
    await unfinished.take(2000)
    with pytest.raises(ResourceExhausted, match=r"20000 bytes; --max-unfinished-bytes"):
        await unfinished.take(2000)
    await unfinished.take(1000)


async def test_each_key_has_room_of_its_own_and_what_others_send_is_not_on_its_account(objects_url, clock):
    """Chunks and whole files count, on every gateway."""
    limits = Limits(unfinished_bytes=10 * LIMIT, unfinished_bytes_per_key=LIMIT)
    registry = Registry(Objects.open(objects_url), limits)
    whole, contents = model(weights(9000))
    await send(registry, file_in(whole), contents[file_in(whole).sha256], sender="greedy")
    joined, parts = model(weights(4000))
    await send(registry, file_in(joined), parts[file_in(joined).sha256], 3000, sender="greedy")
    begun, chunks = model(weights(9000))
    await registry.receive(file_in(begun), 0, chunks[file_in(begun).sha256][:5000], "greedy")
    unfinished = Unfinished(Registry(Objects.open(objects_url), limits), clock)
    await unfinished.take(1000, "greedy")
    with pytest.raises(
        ResourceExhausted, match=r"the key greedy sent .* 20000 bytes; --max-unfinished-bytes-per-key"
    ):
        await unfinished.take(2000, "greedy")
    await unfinished.take(LIMIT, "modest")
    await unfinished.take(LIMIT)
    await unfinished.take(LIMIT)  # without a key nobody can be told from another
    await unfinished.take(1000, "greedy")


async def test_what_somebody_sent_is_on_his_account_until_it_is_a_version_or_gone(objects_url, clock):
    limits = Limits(unfinished_bytes_per_key=LIMIT)
    registry = Registry(Objects.open(objects_url), limits)
    kept, contents = model(weights(15_000))
    await send(registry, file_in(kept), contents[file_in(kept).sha256], 4000, sender="one")
    unfinished = Unfinished(registry, clock)
    with pytest.raises(ResourceExhausted):
        await unfinished.look(10_000, "one")
    await push(registry, weighing=contents[file_in(kept).sha256])
    clock.now += FULL_FOR_S
    await unfinished.look(LIMIT, "one")
    gone, others = model(weights(9000))
    await send(registry, file_in(gone), others[file_in(gone).sha256], sender="one")
    assert len(await registry.objects.keys(SENDERS)) == 2
    await sweep(registry, 3600.0)
    assert len(await registry.objects.keys(SENDERS)) == 2
    await sweep(registry, -60.0)
    assert not await registry.objects.keys(SENDERS)


async def test_where_ones_own_room_is_full_what_is_old_goes_at_once(tmp_path, clock):
    registry = Registry(Objects.open(str(tmp_path)), Limits(unfinished_bytes_per_key=LIMIT))
    old, contents = model(weights(15_000))
    await send(registry, file_in(old), contents[file_in(old).sha256], sender="one")
    unfinished = Unfinished(registry, clock)
    with pytest.raises(ResourceExhausted):
        await unfinished.look(10_000, "one")
    make_old(tmp_path)
    clock.now += FULL_FOR_S
    await unfinished.take(LIMIT, "one")


async def test_a_file_that_is_kept_by_asking_for_it_again_and_again_stays_on_its_senders_account(tmp_path, clock):
    """A push that is refused each time keeps its artifact young, and with it its files."""
    registry = Registry(Objects.open(str(tmp_path)), Limits(unfinished_bytes_per_key=LIMIT))
    manifest, contents = model(weights(15_000))
    for file in manifest.files:
        await send(registry, file, contents[file.sha256], sender="one")
    make_old(tmp_path)
    await registry.commit(manifest)
    await sweep(registry, SWEPT_OLDER_S)
    with pytest.raises(ResourceExhausted):
        await Unfinished(registry, clock).look(10_000, "one")


async def test_what_is_a_version_is_not_counted_and_makes_room(small, clock):
    unfinished = Unfinished(small, clock)
    for _ in range(3):
        await unfinished.take(9000)
        manifest, contents = model(weights(9000))
        await upload(small, manifest, contents)
        clock.now += FULL_FOR_S
        await push(small, weighing=contents[file_in(manifest).sha256])
    await unfinished.look(LIMIT)


async def test_what_other_gateways_take_is_seen_after_a_while(small, clock):
    unfinished = Unfinished(small, clock)
    await unfinished.look(LIMIT)
    manifest, contents = model(weights(15_000))
    await small.receive(file_in(manifest), 0, contents[file_in(manifest).sha256][:10_000])
    clock.now += COUNTED_FOR_S
    with pytest.raises(ResourceExhausted):
        await unfinished.look(15_000)
    await unfinished.look(5_000)


async def test_where_there_is_no_room_what_is_old_goes_at_once(tmp_path, clock):
    registry = Registry(Objects.open(str(tmp_path)), Limits(unfinished_bytes=LIMIT))
    state = await push(registry, weighing=weights(9000))
    old, contents = model(weights(15_000))
    await send(registry, file_in(old), contents[file_in(old).sha256], 15_000)
    unfinished = Unfinished(registry, clock)
    with pytest.raises(ResourceExhausted):
        await unfinished.look(10_000)
    make_old(tmp_path)
    clock.now += FULL_FOR_S
    await unfinished.take(LIMIT)
    await registry.fetch(state.versions[1].digest, tmp_path / "into")


async def test_where_a_ledger_cannot_be_read_nothing_of_a_model_goes_or_is_counted(tmp_path, clock):
    registry = Registry(Objects.open(str(tmp_path)), Limits(unfinished_bytes=LIMIT))
    state = await push(registry, weighing=weights(19_000))
    await registry.objects.put("ledger/team__contracts/00000001.json", b"{")
    again = Registry(registry.objects, registry.limits)
    make_old(tmp_path)
    unfinished = Unfinished(again, clock)
    await unfinished.look(LIMIT)
    with pytest.raises(ResourceExhausted):
        await unfinished.look(LIMIT + 1)
    await again.fetch(state.versions[1].digest, tmp_path / "into")
