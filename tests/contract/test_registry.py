"""What a registry of pushed models owes, on every object store: names that many change at once, and sweeps."""

import asyncio

import pytest

from contract.uploads import NAME, begin, file_in, keys, model, push, pushed, upload, weights
from shoal.catalog.ledger import Aliased, Removed, RolledBack
from shoal.catalog.objects import Objects
from shoal.catalog.objects_folder import FolderObjects
from shoal.catalog.registry import Registry
from shoal.catalog.sweeping import sweep
from shoal.protocol.errors import Conflict, InternalError, InvalidInput, StorageUnavailable

HOUR = 3600.0


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


class Deaf(FolderObjects):
    """Its answers are lost: of the first `create` when it was done, of a second one also before."""

    lost = 0

    async def create(self, key: str, data: bytes) -> bool:
        self.lost += 1
        if self.lost == 1:
            assert await super().create(key, data)
        if self.lost <= 2:
            raise StorageUnavailable("the connection broke")
        return await super().create(key, data)


async def test_a_rollback_whose_answer_is_lost_goes_back_once(tmp_path):
    registry = Registry(Objects.open(str(tmp_path / "objects")))
    for _ in range(4):
        await push(registry)
    deaf = Registry(Deaf(tmp_path / "objects"))
    assert (await deaf.append(NAME, RolledBack(at=1.0, who="x"))).current == 3
    with pytest.raises(StorageUnavailable):
        await deaf.append(NAME, RolledBack(at=2.0, who="x"))
    assert (await deaf.append(NAME, RolledBack(at=3.0, who="x"))).current == 2
    assert await registry.state(NAME) == await deaf.state(NAME)


APPENDER = """
import asyncio, sys
from shoal.catalog.ledger import Aliased
from shoal.catalog.objects import Objects
from shoal.catalog.objects_folder import FolderObjects
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


async def test_a_ledger_that_lost_entries_gets_no_more_with_a_gap_before_them(registry, objects):
    await push(registry)
    await push(registry)
    other = await push(registry, "other")
    last = "ledger/team__contracts/00000002.json"
    entry = await objects.get(last)
    for lost in ((last,), (last, "ledger/team__contracts/00000001.json")):
        for key in lost:
            await objects.delete(key)
        with pytest.raises(InternalError, match="had 2 entries and has"):
            await registry.append(NAME, Aliased(at=3.0, who="x", alias="prod"))
        assert await registry.names() == {"other": other}
        assert list(registry.unreadable) == [NAME]
        if len(lost) == 1:
            await objects.put(last, entry)
            assert (await registry.append(NAME, Aliased(at=3.0, who="x", alias="prod"))).number == 3
            await objects.delete("ledger/team__contracts/00000003.json")
            registry = Registry(objects)
            await registry.names()
    assert await keys(objects, "ledger/") == {"ledger/other/00000001.json"}


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
