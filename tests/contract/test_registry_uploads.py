"""What a registry of pushed models owes whoever sends files: uploads that are broken off, killed, wrong, or made
twice at once."""

import asyncio
import contextlib
import hashlib

import pytest

from contract.uploads import NAME, begin, file_in, keys, model, pushed, send, silent, upload, weights
from shoal.catalog.artifacts import digest_of
from shoal.catalog.chunks import CHUNK_BYTES
from shoal.catalog.manifests import File, Limits, Manifest
from shoal.catalog.objects import Objects
from shoal.catalog.registry import Registry
from shoal.catalog.sweeping import sweep
from shoal.protocol.errors import Conflict, InvalidInput, ModelLoadFailed, NotFound, PayloadTooLarge


async def test_what_was_uploaded_is_fetched_byte_for_byte(registry, tmp_path):
    manifest, contents = model(weights(3 * CHUNK_BYTES + 17))
    assert await registry.missing(manifest) == {
        sha256: 0 for sha256, data in contents.items() if data
    }  # what is empty need not be sent
    digest = await upload(registry, manifest, contents)
    assert await registry.missing(manifest) == {}
    assert digest == manifest.digest
    assert await registry.manifest(digest) == manifest
    await registry.fetch(digest, tmp_path / "into")
    assert digest_of(tmp_path / "into", silent) == digest
    assert {file.path for file in manifest.files} == {path.name for path in (tmp_path / "into").iterdir()}


async def test_what_is_complete_leaves_no_chunks_and_is_not_sent_again(registry, objects):
    manifest, contents = model(weights(5000))
    file = file_in(manifest)
    await send(registry, file, contents[file.sha256], 1000)
    assert await keys(objects, "uploads/") == set()
    assert file.sha256 not in await registry.missing(manifest)
    assert await registry.receive(file, 1000, b"whatever") == 5000


async def test_an_upload_goes_on_where_it_was_broken_off_through_another_gateway(registry, objects_url):
    manifest, contents = model(weights(5000))
    file = file_in(manifest)
    data = contents[file.sha256]
    assert await registry.receive(file, 0, data[:2000]) == 2000
    other = Registry(Objects.open(objects_url))
    assert (await other.missing(manifest))[file.sha256] == 2000
    with pytest.raises(Conflict) as refused:
        await other.receive(file, 3000, data[3000:])
    assert refused.value.detail["offset"] == 2000
    with pytest.raises(Conflict) as refused:
        await other.receive(file, 0, data[:2000])
    assert refused.value.detail["offset"] == 2000
    assert await other.receive(file, 2000, b"") == 2000
    assert await other.receive(file, 2000, data[2000:]) == 5000


async def test_a_file_whose_chunks_are_all_there_is_completed_by_whoever_asks(registry, objects):
    """Its last sender died before that."""
    manifest, contents = model(weights(5000))
    file = file_in(manifest)
    data = contents[file.sha256]
    await registry.receive(file, 0, data[:2000])
    await objects.create(f"uploads/{file.sha256}.5000/{2000:012}", data[2000:])
    assert file.sha256 not in await registry.missing(manifest)
    assert await objects.get(f"blobs/{file.sha256}") == data


@pytest.mark.parametrize("chunk", [1000, 5000])
async def test_a_wrong_hash_is_refused_and_nothing_of_it_kept(registry, objects, chunk):
    manifest, contents = model(weights(5000))
    file = file_in(manifest)
    with pytest.raises(InvalidInput, match="has not the sha256"):
        await send(registry, file, weights(5000), chunk)
    assert await keys(objects) == set()
    await send(registry, file, contents[file.sha256], chunk)
    assert await keys(objects) == {f"blobs/{file.sha256}"}


async def test_chunks_that_do_not_join_disturb_nobody(registry, objects):
    manifest, contents = model(weights(5000))
    file = file_in(manifest)
    for offset in (1500, 4200):
        await objects.create(f"uploads/{file.sha256}.5000/{offset:012}", bytes(1000))
    await send(registry, file, contents[file.sha256], 1000)
    assert await keys(objects) == {f"blobs/{file.sha256}"}


async def test_a_stale_chunk_in_the_right_place_costs_one_more_try(registry, objects):
    manifest, contents = model(weights(5000))
    file = file_in(manifest)
    await objects.create(f"uploads/{file.sha256}.5000/{1000:012}", bytes(1000))
    with pytest.raises(InvalidInput, match="has not the sha256"):
        await send(registry, file, contents[file.sha256], 1000)
    await send(registry, file, contents[file.sha256], 1000)
    assert await keys(objects) == {f"blobs/{file.sha256}"}


async def test_what_one_key_sends_wrongly_does_not_spoil_the_file_of_another(registry, objects):
    manifest, contents = model(weights(5000))
    file = file_in(manifest)
    data = contents[file.sha256]
    assert await registry.receive(file, 0, weights(2000), "bad") == 2000
    assert (await registry.missing(manifest, "good"))[file.sha256] == 0
    assert await registry.receive(file, 0, data[:3000], "good") == 3000
    assert await registry.receive(file, 2000, weights(2000), "bad") == 4000
    assert await registry.receive(file, 3000, data[3000:], "good") == 5000
    assert await objects.get(f"blobs/{file.sha256}") == data
    assert await registry.receive(file, 4000, b"", "bad") == 5000


@pytest.mark.parametrize("chunk", [700, 1000])
async def test_two_who_upload_one_file_at_once_complete_it_together(registry, objects, objects_url, chunk):
    manifest, contents = model(weights(9000))
    file = file_in(manifest)
    data = contents[file.sha256]
    other = Registry(Objects.open(objects_url))
    await asyncio.gather(send(registry, file, data, 1000), send(other, file, data, chunk))
    assert await objects.get(f"blobs/{file.sha256}") == data
    assert await registry.missing(Manifest((file_in(manifest), file_in(manifest, "config.json")))) == {
        file_in(manifest, "config.json").sha256: 0
    }


async def test_a_file_is_completed_also_when_whoever_sent_its_end_has_left(registry, objects):
    manifest, contents = model(weights(3_000_000))
    file = file_in(manifest)
    data = contents[file.sha256]
    await registry.receive(file, 0, data[:2_000_000])
    sending = asyncio.ensure_future(registry.receive(file, 2_000_000, data[2_000_000:]))
    while f"uploads/{file.sha256}.3000000/{2_000_000:012}" not in await keys(objects) and not sending.done():
        await asyncio.sleep(0)
    sending.cancel()
    await asyncio.wait([sending])
    async with asyncio.timeout(60):
        while f"blobs/{file.sha256}" not in await keys(objects):
            if await keys(objects, "uploads/"):
                await registry.receive(file, 3_000_000, b"")  # a client that asks again waits for the same
    assert await objects.get(f"blobs/{file.sha256}") == data


async def test_whoever_lies_about_a_size_does_not_disturb_who_does_not(registry):
    manifest, contents = model(weights(5000))
    file = file_in(manifest)
    data = contents[file.sha256]
    await registry.receive(file, 0, data[:2000])
    liar = File(file.path, file.sha256, 3000)
    with pytest.raises(InvalidInput, match="has not the sha256"):
        await send(registry, liar, data[:3000], 1000)
    assert await registry.receive(file, 2000, data[2000:]) == 5000
    with pytest.raises(InvalidInput, match="3000 bytes"):
        await registry.receive(liar, 0, data[:3000])


async def test_a_chunk_is_bounded_by_the_file_and_by_what_a_gateway_takes(registry, objects):
    manifest, contents = model(weights(5000))
    file = file_in(manifest)
    with pytest.raises(InvalidInput, match="5000 bytes"):
        await registry.receive(file, 0, contents[file.sha256] + b"x")
    with pytest.raises(InvalidInput, match="5000 bytes"):
        await registry.receive(file, -1, b"x")
    large = File("model.safetensors", "a" * 64, 10**10)
    with pytest.raises(PayloadTooLarge, match=str(CHUNK_BYTES)):
        await registry.receive(large, 0, bytes(CHUNK_BYTES + 1))
    with pytest.raises(InvalidInput, match="chunks"):
        await registry.receive(large, 0, weights(100))
    assert await keys(objects) == set()


async def test_zeros_and_what_else_is_no_safetensors_are_refused_with_their_first_chunk(registry, objects):
    zeros = File("model.safetensors", "a" * 64, 10**7)
    for start in (bytes(4000), b"\x80\x02}q" * 1000, b"PK\x03\x04" * 1000, weights()[:8] + b"[1]" * 1000):
        with pytest.raises(InvalidInput, match="not a safetensors file"):
            await registry.receive(zeros, 0, start)
    assert await keys(objects) == set()


@pytest.mark.parametrize("sha256", ["../x", "", "A" * 64, "a" * 63])
async def test_a_hash_that_is_none_names_nothing(registry, objects, sha256):
    with pytest.raises(InvalidInput):
        await registry.receive(File("config.json", sha256, 10), 0, b"0123456789")
    assert await keys(objects) == set()


async def test_an_artifact_is_there_only_when_all_of_it_is(registry, objects, tmp_path):
    manifest, _ = model()
    await registry.receive(file_in(manifest, "config.json"), 0, b"{}")
    with pytest.raises(Conflict, match=r"model\.safetensors is not complete"):
        await registry.commit(manifest)
    assert await keys(objects, "artifacts/") == set()
    for ask in (registry.manifest(manifest.digest), registry.fetch(manifest.digest, tmp_path / "into")):
        with pytest.raises(NotFound):
            await ask
    with pytest.raises(Conflict, match="no artifact"):
        await registry.append(NAME, pushed(manifest.digest))
    assert await registry.names() == {}


@pytest.mark.parametrize("digest", ["", "x", "../artifacts", "A" * 64])
async def test_a_digest_that_is_none_is_not_found(registry, tmp_path, digest):
    with pytest.raises(NotFound):
        await registry.fetch(digest, tmp_path)


async def test_bad_manifests_are_refused_before_anything_is_asked(registry, objects):
    manifest, _ = model()
    bad = Manifest((*manifest.files, File("../up.json", "a" * 64, 1)))
    for ask in (registry.missing(bad), registry.commit(bad)):
        with pytest.raises(InvalidInput, match=r"up\.json"):
            await ask
    small = Registry(objects, Limits(artifact_bytes=10))
    for ask in (small.missing(manifest), small.commit(manifest)):
        with pytest.raises(PayloadTooLarge, match="--max-artifact-bytes"):
            await ask


@pytest.mark.parametrize("forged", ["another's", "not JSON", "up"])
async def test_a_manifest_that_lies_in_the_store_is_not_believed(registry, objects, tmp_path, forged):
    digest = await upload(registry, *model())
    other = await upload(registry, *model())
    data = await objects.get(f"artifacts/{other}.json")
    if forged == "up":
        lying = Manifest((File("../../escaped.json", hashlib.sha256(b"{}").hexdigest(), 2),))
        digest, data = lying.digest, b'{"files":[{"path":"../../escaped.json","sha256":"%s","size_bytes":2}]}'
        data = data.replace(b"%s", hashlib.sha256(b"{}").hexdigest().encode())
    await objects.put(f"artifacts/{digest}.json", b"{" if forged == "not JSON" else data)
    into = tmp_path / "deep" / "down"
    into.mkdir(parents=True)
    with pytest.raises(ModelLoadFailed, match=digest):
        await registry.fetch(digest, into)
    assert sorted(path.name for path in (tmp_path / "deep").rglob("*")) == ["down"]


async def test_a_damaged_blob_is_found_at_fetch_and_repaired_by_the_next_push(registry, objects, tmp_path):
    manifest, contents = model()
    digest = await upload(registry, manifest, contents)
    file = file_in(manifest)
    wrong = bytearray(contents[file.sha256])
    wrong[500] ^= 1
    await objects.put(f"blobs/{file.sha256}", bytes(wrong))
    with pytest.raises(ModelLoadFailed, match="damaged"):
        await registry.fetch(digest, tmp_path / "into")
    assert not (tmp_path / "into" / file.path).exists()
    assert await registry.missing(manifest) == {file.sha256: 0}
    assert await upload(registry, manifest, contents) == digest
    await registry.fetch(digest, tmp_path / "into")
    assert digest_of(tmp_path / "into", silent) == digest
    assert await keys(objects, "damaged/") == set()


async def test_a_blob_that_only_one_reader_found_damaged_stays(registry, objects):
    manifest, contents = model()
    await upload(registry, manifest, contents)
    sha256 = file_in(manifest).sha256
    await objects.put(f"damaged/{sha256}", b"")
    assert await registry.missing(manifest) == {}
    assert await objects.get(f"blobs/{sha256}") == contents[sha256]


async def test_a_blob_that_is_gone_is_said_to_be(registry, objects, tmp_path):
    manifest, contents = model()
    digest = await upload(registry, manifest, contents)
    await objects.delete(f"blobs/{file_in(manifest).sha256}")
    with pytest.raises(ModelLoadFailed, match=r"model\.safetensors is gone"):
        await registry.fetch(digest, tmp_path)


async def test_a_fetch_goes_on_from_the_files_that_are_right(registry, objects, tmp_path):
    manifest, contents = model(extra=b"[1]")
    digest, into = await upload(registry, manifest, contents), tmp_path / "into"
    await registry.fetch(digest, into)
    (into / "config.json").write_bytes(b"[]")
    (into / "model.safetensors").write_bytes(contents[file_in(manifest).sha256][:-1])
    (into / ".extra.json.part").write_bytes(b"half")
    await objects.delete(f"blobs/{file_in(manifest, 'extra.json').sha256}")  # it is not asked for again
    await registry.fetch(digest, into)
    assert digest_of(into, silent) == digest


UPLOADER = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from contract.uploads import model, send, file_in, weights
from shoal.catalog.objects import Objects
from shoal.catalog.registry import Registry

async def upload():
    registry = Registry(Objects.open(sys.argv[1]))
    manifest, contents = model(weights(4_000_000, b"the same"))
    print("begun", flush=True)
    for file in manifest.files:
        await send(registry, file, contents[file.sha256], 500_000)
    print(await registry.commit(manifest), flush=True)

asyncio.run(upload())
"""


async def test_an_upload_that_is_killed_at_any_moment_is_never_half_there_and_goes_on(
    registry, objects, objects_url, tmp_path, request
):
    manifest, _ = model(weights(4_000_000, b"the same"))
    tests = str(request.config.rootpath / "tests")
    for turn in range(3 if objects_url.startswith("s3") else 8):
        process = await begin(UPLOADER, objects_url, tests)
        assert await process.stdout.readline() == b"begun\n"
        await asyncio.sleep(0.01 * turn)
        with contextlib.suppress(ProcessLookupError):  # a quick one is done already
            process.kill()
        await process.communicate()
        for key in await keys(objects, "blobs/"):
            assert hashlib.sha256(await objects.get(key)).hexdigest() == key.removeprefix("blobs/")
        if await keys(objects, "artifacts/"):
            await registry.fetch(manifest.digest, tmp_path / f"fetched-{turn}")
    process = await begin(UPLOADER, objects_url, tests)
    assert (await process.communicate())[0].decode().split()[-1] == manifest.digest
    await registry.fetch(manifest.digest, tmp_path / "fetched")
    assert digest_of(tmp_path / "fetched", silent) == manifest.digest
    await sweep(registry, -60.0)
    assert await keys(objects, "uploads/") == set()
