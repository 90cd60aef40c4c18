"""What an object store owes, on a folder and on a server that speaks S3."""

import asyncio
import hashlib
import os
import secrets
import subprocess
import sys
import time

import pytest

from shoal.catalog.identity import identity
from shoal.catalog.objects import PART_BYTES, NotThere, Objects
from shoal.protocol.errors import InvalidInput, StorageUnavailable
from shoal.testing.s3 import PAGE_KEYS
from shoal.testing.server import free_port

ODD = "a/name with spaces, ü+%2F&?#.json"


async def of(*parts: bytes):
    for part in parts:
        yield part


async def read(objects, key: str) -> bytes:
    return b"".join([part async for part in objects.parts(key)])


async def test_what_was_put_is_got_and_the_last_counts(objects):
    for data in (b"", b"one", bytes(range(256)) * 5000):
        await objects.put("some/key.json", data)
        assert await objects.get("some/key.json") == data
        assert await objects.size_of("some/key.json") == len(data)
        assert await read(objects, "some/key.json") == data


async def test_what_nobody_put_is_not_there(objects):
    await objects.put("some/key", b"x")
    for key in ("other", "some", "some/key/below", "some/ke"):
        with pytest.raises(NotThere):
            await objects.get(key)
        with pytest.raises(NotThere):
            await read(objects, key)
        assert await objects.size_of(key) is None


async def test_odd_characters_in_a_key_are_only_characters(objects):
    assert await objects.create(ODD, b"odd")
    assert not await objects.create(ODD, b"again")
    assert await objects.get(ODD) == b"odd"
    assert [found.key for found in await objects.list("a/")] == [ODD]


async def test_only_the_first_creates(objects):
    assert await objects.create("ledger/x/1", b"first")
    assert not await objects.create("ledger/x/1", b"second")
    assert await objects.get("ledger/x/1") == b"first"


async def test_of_many_who_create_at_once_one_succeeds_and_its_bytes_are_there(objects):
    for number in range(5):
        key, written = f"ledger/x/{number}", [secrets.token_bytes(2000) for _ in range(8)]
        created = await asyncio.gather(*(objects.create(key, data) for data in written))
        assert created.count(True) == 1
        assert await objects.get(key) == written[created.index(True)]


async def test_what_was_deleted_is_gone_and_can_be_created_again(objects):
    await objects.put("deep/down/here", b"x")
    await objects.delete("deep/down/here")
    await objects.delete("deep/down/here")
    assert await objects.size_of("deep/down/here") is None
    assert await objects.list("deep/") == []
    assert await objects.create("deep/down/here", b"y")


async def test_a_list_has_all_below_a_folder_sorted_and_no_neighbours(objects):
    before = time.time() - 60
    for key in ("a/2/x", "a/1", "ab/1", "a/10", "b"):
        await objects.put(key, key.encode())
    found = await objects.list("a/")
    assert [(one.key, one.size_bytes) for one in found] == [("a/1", 3), ("a/10", 4), ("a/2/x", 5)]
    assert all(before < one.modified < time.time() + 60 for one in found)
    assert await objects.list("a/2/") == found[2:]
    assert sorted(await objects.keys("a/")) == ["a/1", "a/10", "a/2/x"]
    assert list(await objects.keys("nothing/")) == []
    assert await objects.list("nothing/") == []


async def test_a_list_of_more_than_a_page_is_whole(objects):
    keys = [f"many/{number:05}" for number in range(PAGE_KEYS * 3 + 1)]
    await asyncio.gather(*(objects.put(key, b"") for key in keys))
    assert [found.key for found in await objects.list("many/")] == keys


async def test_the_etag_differs_after_every_write(objects):
    seen = set()
    for data in (b"one", b"two", b"six"):
        await objects.put("key/is", data)
        seen.add((await objects.list("key/"))[0].etag)
    assert len(seen) == 3


async def test_parts_are_put_as_one_and_fetched_with_their_hash(objects, tmp_path):
    parts = [secrets.token_bytes(PART_BYTES), secrets.token_bytes(PART_BYTES), b"the rest"]
    await objects.put_parts("blobs/x", of(*parts))
    whole = b"".join(parts)
    assert await objects.size_of("blobs/x") == len(whole)
    assert await objects.fetch("blobs/x", tmp_path / "fetched") == hashlib.sha256(whole).hexdigest()
    assert (tmp_path / "fetched").read_bytes() == whole
    await objects.put_parts("blobs/empty", of())
    assert await objects.get("blobs/empty") == b""


@pytest.mark.parametrize("size", [10, PART_BYTES + 10])
async def test_parts_that_break_off_leave_nothing(objects, size):
    async def breaking():
        yield bytes(size)
        raise ValueError("the source is wrong")

    with pytest.raises(ValueError, match="the source is wrong"):
        await objects.put_parts("blobs/x", breaking())
    assert await objects.size_of("blobs/x") is None
    assert await objects.list("blobs/") == []


async def test_parts_that_break_off_leave_what_was_there(objects):
    async def breaking():
        yield b"new"
        raise ValueError("the source is wrong")

    await objects.put("blobs/x", b"old")
    with pytest.raises(ValueError, match="the source is wrong"):
        await objects.put_parts("blobs/x", breaking())
    assert await objects.get("blobs/x") == b"old"


async def test_what_is_not_there_is_not_fetched(objects, tmp_path):
    with pytest.raises(NotThere):
        await objects.fetch("blobs/x", tmp_path / "fetched")


async def test_a_sweep_leaves_whatever_has_a_key(objects):
    await objects.put("some/key", b"x")
    await objects.sweep(-60)
    assert await objects.get("some/key") == b"x"


WRITER = """
import asyncio, secrets, sys
from shoal.catalog.objects import Objects

async def write():
    objects, data = Objects.open(sys.argv[1]), bytes([int(sys.argv[2])]) * 1_000_000
    while True:
        await objects.put("blobs/put", data)
        await objects.create(f"made/{secrets.token_hex(8)}", data)
        print("wrote", flush=True)

asyncio.run(write())
"""


async def test_a_writer_that_is_killed_at_any_moment_leaves_whole_values_only(objects, objects_url):
    for turn in range(2 if objects_url.startswith("s3") else 6):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, objects_url, str(turn), stdout=asyncio.subprocess.PIPE
        )
        assert await process.stdout.readline() == b"wrote\n"
        await asyncio.sleep(0.003 * turn)
        process.kill()
        await process.communicate()
        for found in await objects.list(""):
            data = await objects.get(found.key)
            assert len(data) == 1_000_000
            assert len(set(data)) == 1
    await objects.sweep(-60)
    assert {found.key.partition("/")[0] for found in await objects.list("")} == {"blobs", "made"}


def test_what_is_no_store_is_refused_with_what_there_is():
    for url in ("", "ftp://some/where", "file://relative", "http://bucket/x"):
        with pytest.raises(InvalidInput, match="s3://"):
            Objects.open(url)
    with pytest.raises(InvalidInput):
        Objects.open("s3://")


def test_without_obstore_a_bucket_names_the_extra_and_a_folder_works(tmp_path):
    code = f"""
import asyncio, sys
sys.modules["obstore"] = None
from shoal.catalog.objects import Objects
asyncio.run(Objects.open({str(tmp_path)!r}).put("a/b", b"x"))
try:
    Objects.open("s3://bucket")
except Exception as error:
    print(type(error).__name__, error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("InvalidInput")
    assert "shoal[cluster]" in said


async def test_a_bucket_with_a_prefix_and_one_without_are_what_their_urls_say(s3):
    bucket = s3.make_bucket("whole-bucket")
    await Objects.open(f"{bucket}/below/").put("key", b"x")
    await Objects.open(bucket).put("key", b"y")
    assert [found.key for found in await Objects.open(bucket).list("")] == ["below/key", "key"]


async def test_a_file_url_is_the_folder(tmp_path):
    await Objects.open(f"file://{tmp_path}/objects").put("a/key", b"x")
    assert (tmp_path / "objects" / "a" / "key").read_bytes() == b"x"


async def test_a_bucket_that_is_not_there_is_unavailable_and_says_which(s3):
    gone = Objects.open("s3://no-such-bucket-here")
    asks = (
        gone.get("a"),
        gone.put("a", b"x"),
        gone.create("a", b"x"),
        gone.list("a/"),
        gone.put_parts("a", of(b"x")),
    )
    for ask in asks:
        with pytest.raises(StorageUnavailable, match=r"s3://no-such-bucket-here.*NoSuchBucket"):
            await ask


async def test_a_server_that_is_gone_is_unavailable(monkeypatch, s3):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(StorageUnavailable, match="s3://bucket"):
        await Objects.open("s3://bucket").get("a")


async def test_a_folder_that_was_removed_or_unmounted_is_unavailable_until_it_is_back(tmp_path):
    folder = tmp_path / "objects"
    objects = Objects.open(str(folder))
    named = await identity(objects)
    await objects.put("keys/a.json", b"a")
    folder.rename(tmp_path / "elsewhere")
    for is_empty in (False, True):  # nothing at all, and what a disk was mounted on
        if is_empty:
            folder.mkdir()
        for ask in (
            objects.put("b", b"b"),
            objects.create("b", b"b"),
            objects.get("keys/a.json"),
            identity(objects),
        ):
            with pytest.raises(StorageUnavailable, match="is gone"):
                await ask
        with pytest.raises(StorageUnavailable, match="is gone"):
            await objects.list("keys/")
        assert [*tmp_path.glob("objects/*")] == []
    folder.rmdir()
    (tmp_path / "elsewhere").rename(folder)
    assert (await objects.get("keys/a.json"), await identity(objects)) == (b"a", named)


async def test_what_no_key_can_name_is_not_listed(tmp_path):
    objects = Objects.open(str(tmp_path / "objects"))
    await objects.put("keys/a.json", b"a")
    for name, target in (("loop.json", "loop.json"), ("gone.json", "nowhere"), ("up", ".."), ("all", "/")):
        (tmp_path / "objects" / "keys" / name).symlink_to(target)
    for name in (".DS_Store", ".nfs0000", ".a/b.json"):
        path = tmp_path / "objects" / "keys" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    assert [found.key for found in await objects.list("keys/")] == ["keys/a.json"]
    assert await objects.keys("") == ["keys/a.json"]


async def test_a_folder_that_cannot_be_written_is_unavailable_and_says_which(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    objects = Objects.open(str(tmp_path / "file"))
    with pytest.raises(StorageUnavailable, match=str(tmp_path)):
        await objects.put("a/b", b"x")


@pytest.mark.parametrize("key", ["../x", "/x", "a//b", "a/../../x", "a/./b", ".staged/x", "", "a/\0"])
async def test_a_key_that_leads_elsewhere_is_refused_by_a_folder(tmp_path, key):
    objects = Objects.open(str(tmp_path / "objects"))
    for ask in (objects.get(key), objects.put(key, b"x"), objects.create(key, b"x"), objects.delete(key)):
        with pytest.raises(InvalidInput):
            await ask
    assert list(tmp_path.iterdir()) == []


async def test_what_is_being_written_is_in_no_list_and_swept_when_its_writer_died(tmp_path):
    objects = Objects.open(str(tmp_path / "objects"))
    writing, go_on = asyncio.Event(), asyncio.Event()

    async def slow():
        yield b"begun"
        writing.set()
        await go_on.wait()

    put = asyncio.ensure_future(objects.put_parts("blobs/x", slow()))
    await asyncio.wait_for(writing.wait(), 60)
    assert await objects.list("") == []
    assert await objects.sweep(3600) == 0
    (left,) = (tmp_path / "objects" / ".staged").iterdir()
    go_on.set()
    await put
    assert not left.exists()
    left.write_bytes(b"of one who died")
    os.utime(left, (time.time() - 7200, time.time() - 7200))
    assert await objects.sweep(3600) == 1
    assert [found.key for found in await objects.list("")] == ["blobs/x"]
