"""What a registry of pushed models owes, on every object store: uploads that are broken off, killed, wrong or made
twice at once, and ledgers that many write."""

import asyncio
import hashlib
import secrets
import sys

import pytest

from shoal.catalog import Card, Folder
from shoal.catalog.artifacts import digest_of
from shoal.catalog.chunks import CHUNK_BYTES
from shoal.catalog.ledger import Aliased, Pushed, Removed, RolledBack
from shoal.catalog.manifests import File, Limits, Manifest
from shoal.catalog.objects import Objects
from shoal.catalog.registry import Registry
from shoal.catalog.sweeping import sweep
from shoal.protocol.errors import Conflict, InternalError, InvalidInput, ModelLoadFailed, NotFound, PayloadTooLarge
from shoal.protocol.facts import Facts

NAME = "team/contracts"
FACTS = Facts(tasks=("encode",), family="bert", files="safetensors", max_tokens=128)
HOUR = 3600.0


@pytest.fixture
def objects(objects_url):
    return Objects.open(objects_url)


@pytest.fixture
def registry(objects):
    return Registry(objects)


def silent(what, done, total):
    pass


def weights(size: int = 1000, seed: bytes = b"") -> bytes:
    """What begins like safetensors. The same for the same seed."""
    body = hashlib.shake_256(seed or secrets.token_bytes(8)).digest(min(size - 10, 100_000))
    return (2).to_bytes(8, "little") + b"{}" + body + bytes(size - 10 - len(body))


def model(weighing: bytes = b"", **files: bytes) -> tuple[Manifest, dict[str, bytes]]:
    """A manifest, and its files' contents by sha256."""
    contents = {"config.json": b"{}", "model.safetensors": weighing or weights(), "README.md": b""}
    contents |= {f"{name}.json": data for name, data in files.items()}
    listed = {path: File(path, hashlib.sha256(data).hexdigest(), len(data)) for path, data in contents.items()}
    return Manifest(tuple(listed.values())), {listed[path].sha256: data for path, data in contents.items()}


def file_in(manifest: Manifest, path: str = "model.safetensors") -> File:
    return next(file for file in manifest.files if file.path == path)


async def send(registry: Registry, file: File, data: bytes, chunk: int = CHUNK_BYTES) -> None:
    """As a client does: it goes on where it is told to."""
    offset = 0
    while offset < file.size_bytes:
        try:
            offset = await registry.receive(file, offset, data[offset : offset + chunk])
        except Conflict as conflict:
            offset = conflict.detail["offset"]


async def upload(registry: Registry, manifest: Manifest, contents: dict[str, bytes]) -> str:
    by_hash = {file.sha256: file for file in manifest.files}
    for sha256 in await registry.missing(manifest):
        await send(registry, by_hash[sha256], contents[sha256])
    return await registry.commit(manifest)


def pushed(digest: str, name: str = NAME) -> Pushed:
    card = Card(name=name, source=Folder(path="x"))
    return Pushed(at=1.0, who="key-1", digest=digest, card=card, facts=FACTS, size_bytes=10)


async def push(registry: Registry, name: str = NAME, weighing: bytes = b"", since: int | None = None):
    digest = await upload(registry, *model(weighing))
    return await registry.append(name, pushed(digest, name), since=since)


async def keys(objects: Objects, prefix: str = "") -> set[str]:
    return {found.key for found in await objects.list(prefix)}


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


async def test_a_push_is_a_version_that_everybody_sees(registry, objects_url):
    state = await push(registry)
    other = Registry(Objects.open(objects_url))
    assert await other.state(NAME) == state
    assert await other.names() == {NAME: state}
    second = await push(other)
    assert (second.current, second.number) == (2, 2)
    assert await registry.state(NAME) == second
    assert await registry.names() == {NAME: second}


async def test_every_kind_of_change_is_kept_and_said_in_the_history(registry, objects_url):
    for _ in range(2):
        await push(registry)
    for change in (
        Aliased(at=2.0, who="a", alias="prod"),
        RolledBack(at=3.0, who="b"),
        Removed(at=4.0, who="c", alias="prod"),
        Removed(at=5.0, who="d", version=2, note="not needed"),
    ):
        await registry.append(NAME, change)
    state = await Registry(Objects.open(objects_url)).state(NAME)
    assert (state.current, sorted(state.versions), state.aliases) == (1, [1], {})
    assert [(event.who, event.note) for event in state.history[2:]] == [
        ("a", ""),
        ("b", ""),
        ("c", ""),
        ("d", "not needed"),
    ]


async def test_a_refused_change_leaves_no_entry(registry, objects):
    await push(registry)
    before = await keys(objects)
    with pytest.raises(Conflict):
        await registry.append(NAME, RolledBack(at=1.0, who="x"))
    with pytest.raises(Conflict, match="added"):
        await registry.append("other", pushed((await registry.state(NAME)).versions[1].digest, "other"), taken=str)
    with pytest.raises(InvalidInput):
        await registry.append("no/such/name", pushed("a" * 64, "no/such/name"))
    assert await keys(objects) == before


async def test_the_same_push_again_is_the_same_version(registry, objects):
    data = weights()
    first = await push(registry, weighing=data)
    assert await push(registry, weighing=data) == first
    assert await keys(objects, "ledger/") == {"ledger/team__contracts/00000001.json"}


async def test_names_that_differ_in_capitals_only_are_not_both_pushed(registry):
    await push(registry, "Team/Contracts")
    with pytest.raises(Conflict, match="Team/Contracts"):
        await push(registry, "team/contracts")


async def test_of_two_who_push_one_name_at_once_one_is_refused_and_told_of_the_other(registry, objects_url):
    """Each at a number of its own, whoever was first."""
    other = Registry(Objects.open(objects_url))
    digests = [await upload(one, *model()) for one in (registry, other)]
    outcomes = await asyncio.gather(
        *(
            one.append(NAME, pushed(digest), since=0)
            for one, digest in zip((registry, other), digests, strict=True)
        ),
        return_exceptions=True,
    )
    (refused,) = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert isinstance(refused, Conflict)
    assert refused.detail["version"] == 1
    assert len((await registry.state(NAME)).versions) == 1


async def test_of_two_who_push_the_same_at_once_both_have_it(registry, objects_url):
    other = Registry(Objects.open(objects_url))
    digest = await upload(registry, *model())
    outcomes = await asyncio.gather(
        *(one.append(NAME, pushed(digest), since=0) for one in (registry, other) for _ in range(3))
    )
    assert {outcome.current for outcome in outcomes} == {1}
    assert len((await registry.state(NAME)).history) == 1


async def test_whoever_began_before_another_push_is_refused_and_whoever_saw_it_is_not(registry):
    await push(registry)
    seen = (await registry.state(NAME)).number
    await registry.append(NAME, Aliased(at=1.0, who="x", alias="prod"))
    await push(registry, since=seen)  # an alias is no push
    with pytest.raises(Conflict, match="as version 2"):
        await push(registry, since=seen)
    await push(registry, since=(await registry.state(NAME)).number)


APPENDER = """
import asyncio, sys
from shoal.catalog.ledger import Aliased
from shoal.catalog.objects import Objects
from shoal.catalog.registry import Registry

url, name, own, each = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])

async def append(who):
    registry = Registry(Objects.open(url))
    for turn in range(each):
        await registry.append(name, Aliased(at=1.0, who=who, alias=f"{who}-{turn}"))
        print(f"{who}-{turn}", flush=True)

async def all():
    await asyncio.gather(*(append(f"a{own}-{number}") for number in range(5)))

asyncio.run(all())
"""


async def begin(code: str, *arguments: str):
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *arguments, stdout=asyncio.subprocess.PIPE
    )


async def test_of_twenty_who_append_to_one_name_from_four_processes_nobody_is_lost(registry, objects, objects_url):
    each = "2"
    await push(registry)
    processes = [await begin(APPENDER, objects_url, NAME, str(number), each) for number in range(4)]
    said = [line for process in processes for line in (await process.communicate())[0].decode().split()]
    assert len(said) == 40
    state = await registry.state(NAME)
    assert sorted(state.aliases) == sorted(said)
    assert [event.number for event in state.history] == list(range(1, 42))
    assert len(await keys(objects, "ledger/")) == 41


async def test_writers_killed_in_the_middle_leave_a_ledger_that_can_be_read_and_written(registry, objects_url):
    """Whatever one was told of before it died is there."""
    await push(registry)
    said: list[str] = []
    for turn in range(2 if objects_url.startswith("s3") else 6):
        process = await begin(APPENDER, objects_url, NAME, str(turn), "1000")
        said.append((await process.stdout.readline()).decode().strip())
        await asyncio.sleep(0.002 * turn)
        process.kill()
        said += (await process.communicate())[0].decode().split()
        state = await Registry(Objects.open(objects_url)).state(NAME)
        assert set(said) <= set(state.aliases)
        for alias in list(state.aliases):
            state = await registry.append(NAME, Removed(at=1.0, who="x", alias=alias))
        said = []


UPLOADER = """
import asyncio, sys
sys.path[:0] = [sys.argv[2], sys.argv[2] + "/contract"]
from test_registry import model, send, file_in, weights
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


async def test_a_ledger_that_cannot_be_read_is_left_out_of_the_names_and_said(registry, objects):
    await push(registry, "one")
    good = await push(registry, "two")
    await objects.put("ledger/one/00000001.json", b"{")
    fresh = Registry(objects)
    assert await fresh.names() == {"two": good}
    assert list(fresh.unreadable) == ["one"]
    with pytest.raises(InternalError, match="entry 1 of the ledger of one"):
        await fresh.state("one")
    with pytest.raises(InternalError):
        await sweep(fresh, -60.0)
    await push(fresh, "two")


async def test_strangers_in_the_ledger_are_no_names(registry, objects):
    state = await push(registry)
    for key in ("ledger/x/note.txt", "ledger/00000001.json", "ledger/a/b/00000001.json", "ledger/x/1.json"):
        await objects.put(key, b"?")
    assert await Registry(objects).names() == {NAME: state}


async def test_a_sweep_takes_what_nobody_needs_and_leaves_what_somebody_does(registry, objects, tmp_path):
    data = weights()
    kept = await push(registry, weighing=data)
    before = await keys(objects)
    await upload(registry, *model())  # refused later, or never named
    half = file_in(model(weights(5000))[0])
    await registry.receive(half, 0, weights(1000))
    await objects.put(f"blobs/{'a' * 64}", b"of nobody")
    assert await sweep(registry, HOUR) == 0  # all of it is young
    assert await sweep(registry, -60.0) == 4
    assert await keys(objects) == before
    await registry.fetch(kept.versions[1].digest, tmp_path)
    assert await sweep(registry, -60.0) == 0


async def test_a_sweep_takes_the_files_of_versions_that_were_removed(registry, objects):
    first = await push(registry)
    await push(registry)
    await registry.append(NAME, Removed(at=1.0, who="x", version=1))
    await sweep(registry, -60.0)
    assert f"artifacts/{first.versions[1].digest}.json" not in await keys(objects)
    assert len(await keys(objects, "artifacts/")) == 1
    await registry.append(NAME, Removed(at=1.0, who="x"))
    await sweep(registry, -60.0)
    assert {key.partition("/")[0] for key in await keys(objects)} == {"ledger"}
    assert (await push(registry)).current == 3


async def test_an_upload_to_which_something_was_added_lately_is_not_swept(registry, objects):
    manifest, contents = model(weights(5000))
    file = file_in(manifest)
    await registry.receive(file, 0, contents[file.sha256][:1000])
    assert await sweep(registry, HOUR) == 0
    assert (await registry.missing(manifest))[file.sha256] == 1000
