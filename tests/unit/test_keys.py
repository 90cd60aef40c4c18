"""Keys as records in an object store, and `shoal key`, which makes them."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from shoal import cli
from shoal.catalog.keys import Keys
from shoal.catalog.objects import Objects
from shoal.cli.key import moment
from shoal.gateway.access import ANY_KEY, Access
from shoal.protocol.errors import Conflict, InvalidInput, NotFound, Unauthorized

NOW = 1_800_000_000.0
DAY = 86400.0


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return Objects.open(str(tmp_path / "objects"))


def bearer(plain: str) -> dict[bytes, bytes]:
    return {b"authorization": f"Bearer {plain}".encode()}


def secret_of(plain: str) -> str:
    return plain.rpartition("_")[2]


async def test_what_is_kept_of_a_key_lets_nobody_in(objects: Objects, tmp_path: Path) -> None:
    plain = await Keys(objects).create("ci", ["infer"], NOW)
    files = [path for path in (tmp_path / "objects").rglob("*") if path.is_file()]
    assert len(files) == 1
    assert secret_of(plain) not in files[0].read_text()
    assert re.fullmatch(r"shoal_[0-9a-f]{12}_[0-9a-f]{64}", plain)


async def test_a_running_server_learns_of_keys_that_come_and_go(objects: Objects) -> None:
    door, keys = Access(keys=Keys(objects), clock=lambda: NOW), Keys(objects)
    await door.load()
    assert door.is_known({})
    plain = await keys.create("ci", ["infer"], NOW)
    await door.load()
    assert not door.is_known({})
    assert door.check(bearer(plain), "infer").name == "ci"
    await keys.revoke("ci", NOW)
    await door.load()
    with pytest.raises(Unauthorized, match="revoked"):
        door.check(bearer(plain), ANY_KEY)
    assert not door.is_known({})
    await keys.forget("ci", NOW)
    await door.load()
    assert not door.is_known({})  # a store that lost its keys opens no door
    door = Access(keys=Keys(objects))
    await door.load()
    assert door.is_known({})


async def test_a_snapshot_is_kept_current_and_survives_a_store_that_is_away(
    objects: Objects, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("shoal.gateway.access.EVERY_S", 0.01)
    door = Access(keys=Keys(objects))
    watching = asyncio.create_task(door.watch())
    plain = await Keys(objects).create("ci", ["infer"], NOW)
    async with asyncio.timeout(60):
        while door.is_known({}):
            await asyncio.sleep(0.01)
    folder = tmp_path / "objects" / "keys"
    record = next(folder.iterdir())
    aside = record.read_bytes()
    folder.rename(tmp_path / "aside")
    folder.write_text("no folder any more")
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert not watching.done()
    assert not door.is_known({})
    folder.unlink()
    (tmp_path / "aside").rename(folder)
    assert record.read_bytes() == aside
    async with asyncio.timeout(60):
        while not door.is_known(bearer(plain)):
            await asyncio.sleep(0.01)
    watching.cancel()


async def test_a_record_that_is_none_lets_nobody_in_and_harms_no_other(objects: Objects) -> None:
    plain = await Keys(objects).create("ci", ["infer"], NOW)
    forged = await Keys(objects).create("forged", ["admin"], NOW)
    name = forged.split("_")[1]
    await objects.put(f"keys/{name}.json", b'{"id": "ffffffffffff", "name": "forged"')
    other = (await objects.get(f"keys/{plain.split('_')[1]}.json")).decode()
    await objects.put("keys/aaaaaaaaaaaa.json", other.encode())
    door = Access(keys=Keys(objects), clock=lambda: NOW)
    await door.load()
    assert door.is_known(bearer(plain))
    assert not door.is_known(bearer(forged))
    assert not door.is_known(bearer(f"shoal_aaaaaaaaaaaa_{secret_of(plain)}"))


async def test_a_name_is_one_good_keys_at_a_time(objects: Objects) -> None:
    keys = Keys(objects)
    first = await keys.create("ci", ["infer"], NOW)
    with pytest.raises(Conflict, match="revoke it first"):
        await keys.create("ci", ["admin"], NOW)
    await keys.revoke("ci", NOW)
    second = await keys.create("ci", ["infer"], NOW + 1)
    assert (await keys.revoke("ci", NOW + 2)).id == second.split("_")[1]
    assert (await keys.revoke(first.split("_")[1], NOW + 3)).revoked == NOW  # revoked once is revoked then
    with pytest.raises(NotFound, match="shoal key list"):
        await keys.revoke("another", NOW)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_a_key_is_shown_once_then_listed_and_revoked(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path))
    code, out, err = run(capsys, "key", "create", "--name", "ci", "--scope", "infer", "--scope", "push:team/*")
    assert (code, out.count("\n")) == (0, 1)
    assert "not shown again" in err
    secret = secret_of(out.strip())
    assert list((tmp_path / "objects" / "keys").iterdir())
    for words in (("key", "list"), ("key", "list", "--json")):
        code, out, _ = run(capsys, *words)
        assert (code, "push:team/*" in out, secret in out) == (0, True, False)
    assert run(capsys, "key", "revoke", "ci")[0] == 0
    (listed,) = json.loads(run(capsys, "key", "list", "--json")[1])
    assert listed["state"].startswith("revoked")
    assert "digest" not in listed
    code, _, err = run(capsys, "key", "revoke", "ci", "--forget")
    assert (code, "until it is started anew" in err) == (0, True)
    assert run(capsys, "key", "list")[1] == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--scope", "everything"], "push:team/*"),
        (["--scope", "infer", "--expires", "soon"], "30d"),
        (["--scope", "infer", "--expires", "0d"], "expired already"),
        (["--scope", "infer", "--expires", "2001-01-01"], "expired already"),
    ],
)
def test_a_key_that_cannot_be_is_refused_with_what_can(
    tmp_path: Path, capsys, options: list[str], words: str
) -> None:
    code, out, err = run(capsys, "key", "create", "--name", "ci", *options, "--objects", str(tmp_path / "o"))
    assert (code, out, words in err) == (1, "", True), err


def test_a_time_to_live_is_a_number_with_its_unit_or_a_day() -> None:
    assert moment("30d", NOW) == NOW + 30 * DAY
    assert (moment("12h", NOW), moment("90m", NOW), moment("2w", NOW)) == (
        NOW + DAY / 2,
        NOW + 5400,
        NOW + 14 * DAY,
    )
    assert moment("2027-01-31", NOW) == 1801353600.0
    for wrong in ("", "d", "-1d", "1.5d", "30", "30 d", "²d", "2027-13-01", "999999999d"):
        with pytest.raises(InvalidInput, match="--expires"):
            moment(wrong, NOW)
