"""Pushing to a running server, by our clients, the command line and plain HTTP: what becomes of it, and that bad
pushes are refused with the reason and leave nothing behind.
"""

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import shoal
from names import VIRTUAL
from shoal.protocol.errors import (
    Conflict,
    InvalidInput,
    ModelNotFound,
    PayloadTooLarge,
    ShoalError,
)
from shoal.testing.checkpoints import tiny_encoder, tiny_reranker
from shoal.testing.server import Server, free_port, serving

NAMES = "/v1/configs/models"
TEXTS = ["fish swim in a shoal", "paris is the capital of france"]
WITHIN_S = 120.0


@pytest.fixture(scope="module")
def objects(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("objects")


@pytest.fixture(scope="module")
def running(virtual_home, objects) -> Iterator[Server]:
    with serving(virtual_home, "--objects", str(objects), "--max-artifact-bytes", "200000000") as server:
        yield server


@pytest.fixture
def client(running) -> Iterator[shoal.Client]:
    with shoal.Client(running.url, timeout_s=WITHIN_S) as client:
        yield client


@pytest.fixture
def http(running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=running.url, timeout=WITHIN_S) as client:
        yield client


def encoder(folder: Path, seed: int = 0, *, padding_bytes: int = 0) -> Path:
    """A model's folder; `padding_bytes` make it large, by a tensor that nothing reads."""
    tiny_encoder(folder, seed=seed)
    if padding_bytes:
        weights = load_file(folder / "model.safetensors")
        weights["padding"] = np.random.default_rng(seed).integers(0, 255, padding_bytes, dtype=np.uint8)
        save_file(weights, folder / "model.safetensors")
    return folder


def listed(http: httpx.Client) -> set[str]:
    return {entry["name"] for entry in http.get(NAMES).json()["models"]}


def files_of(folder: Path) -> list[dict[str, Any]]:
    """A manifest, as whoever writes it by hand would."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [
        {
            "path": path.relative_to(folder).as_posix(),
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "size_bytes": path.stat().st_size,
        }
        for path in paths
    ]


def test_a_push_is_served_versions_stay_and_a_rollback_goes_back(client, tmp_path):
    told: list[tuple[str, int, int]] = []
    first = client.push(
        encoder(tmp_path / "a", 1), "team/finder", note="first", progress=lambda *said: told.append(said)
    )
    assert (first.name, first.version, first.facts["tasks"], first.sent_bytes) == (
        "team/finder",
        1,
        ["encode"],
        first.size_bytes,
    )
    assert {stage.split()[0] for stage, _, _ in told} >= {"reading", "sending", "proving"}
    vectors = client.encode("team/finder", TEXTS)
    kept = [{"text": text, "vector": vector} for text, vector in zip(TEXTS, vectors, strict=True)]
    second = client.push(encoder(tmp_path / "b", 2), "team/finder")
    assert (second.version, second.sent_bytes < second.size_bytes) == (2, True)
    assert np.abs(client.encode("team/finder", TEXTS) - vectors).max() > 0.01
    assert np.array_equal(client.encode("team/finder@1", TEXTS), vectors)

    again = client.push(tmp_path / "a", "team/other", reference=kept)
    assert (again.sent_bytes, again.rows_compared, again.nearest > 0.999) == (0, 2, True)
    with pytest.raises(InvalidInput, match="reference"):
        client.push(tmp_path / "b", "team/wrong", reference=kept)
    with pytest.raises(ModelNotFound):
        client.pushed("team/wrong")

    assert client.alias("team/finder", "prod")["aliases"] == {"prod": 2}
    assert client.alias("team/finder", "prod", 1)["aliases"] == {"prod": 1}
    assert np.array_equal(client.encode("team/finder@prod", TEXTS), vectors)
    assert client.rollback("team/finder", "prod")["aliases"] == {"prod": 2}
    assert client.rollback("team/finder")["current"] == 1
    assert np.array_equal(client.encode("team/finder", TEXTS), vectors)
    with pytest.raises(Conflict, match="alias"):
        client.remove("team/finder@2")
    assert client.remove("team/finder@prod")["aliases"] == {}
    assert [version["version"] for version in client.remove("team/finder@2")["versions"]] == [1]
    assert client.remove("team/finder")["current"] == 0
    with pytest.raises(ModelNotFound):
        client.encode("team/finder", TEXTS)
    events = client.history("team/finder")
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))
    assert (events[0]["note"], events[0]["who"]) == ("first", "without a key")


def test_the_asynchronous_client_does_the_same(running, tmp_path):
    async def all_of_it() -> None:
        async with shoal.AsyncClient(running.url, timeout_s=WITHIN_S) as client:
            folder = await asyncio.to_thread(encoder, tmp_path / "m", 3)
            done = await client.push(folder, "team/awaited", note="n")
            assert (done.version, (await client.encode("team/awaited", TEXTS)).shape) == (1, (2, 32))
            await client.alias("team/awaited", "prod", 1)
            assert (await client.pushed("team/awaited"))["aliases"] == {"prod": 1}
            with pytest.raises(Conflict):
                await client.rollback("team/awaited")
            assert len(await client.history("team/awaited")) == 2
            assert (await client.remove("team/awaited"))["current"] == 0

    asyncio.run(all_of_it())


def test_a_dry_run_proves_and_keeps_nothing(client, http, tmp_path):
    tried = client.push(encoder(tmp_path / "m", 4), "team/tried", dry_run=True)
    assert (tried.version, tried.facts["dims"]) == (0, 32)
    assert "team/tried" not in listed(http)
    with pytest.raises(ModelNotFound):
        client.encode("team/tried", TEXTS)
    answer = http.post(
        NAMES, json={"name": "team/tried", "files": files_of(tmp_path / "m")}, params={"dry_run": 1}
    )
    assert (answer.status_code, answer.json()["version"]) == (200, 0)


def test_names_that_look_like_routes_are_names_all_the_same(client, tmp_path):
    folder = encoder(tmp_path / "m", 5)
    for name in ("team/history", "team/rollback", "aliases", "team/aliases"):
        assert client.push(folder, name).version == 1
        assert client.alias(name, "prod")["aliases"] == {"prod": 1}
        assert client.pushed(name)["name"] == name
        assert len(client.history(name)) == 2
        assert client.remove(name)["current"] == 0


def test_an_archive_is_pushed_as_its_folder_is(client, tmp_path):
    tiny_reranker(tmp_path / "m")
    with tarfile.open(tmp_path / "m.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "m", "m")
    assert client.push(tmp_path / "m.tar.gz", "team/ranker").facts["tasks"] == ["score"]
    assert len(client.score("team/ranker", "the capital", TEXTS)) == 2


def test_files_can_be_sent_by_hand_and_go_on_where_they_stopped(http, tmp_path):
    folder = encoder(tmp_path / "m", 6)
    files = files_of(folder)
    weights = next(file for file in files if file["path"] == "model.safetensors")
    data = (folder / "model.safetensors").read_bytes()
    place = f"/v1/uploads/{weights['sha256']}"
    size = {"size": len(data)}
    missing = http.post("/v1/uploads", json={"files": files}).raise_for_status().json()["missing"]
    assert missing[weights["sha256"]] == 0
    assert http.put(place, params=size | {"offset": 0}, content=data[:1000]).json()["offset"] == 1000
    for offset in (0, 999, 1001, len(data) - 1):
        refused = http.put(place, params=size | {"offset": offset}, content=data[offset : offset + 1000])
        assert (refused.status_code, refused.json()["detail"]["offset"]) == (409, 1000)
    assert http.get(place, params=size).json()["offset"] == 1000
    assert http.head(place, params=size).headers["x-shoal-offset"] == "1000"
    assert http.post("/v1/uploads", json={"files": files}).json()["missing"][weights["sha256"]] == 1000
    incomplete = http.post(NAMES, json={"name": "team/by-hand", "files": files})
    assert (incomplete.status_code, incomplete.json()["detail"]["code"]) == (409, "CONFLICT")
    assert http.put(place, params=size | {"offset": 1000}, content=data[1000:]).json()["offset"] == len(data)
    for file in files:
        content = (folder / file["path"]).read_bytes()
        params = {"size": len(content), "offset": 0}
        http.put(f"/v1/uploads/{file['sha256']}", params=params, content=content).raise_for_status()
    assert http.post("/v1/uploads", json={"files": files}).json()["missing"] == {}
    done = http.post(NAMES, json={"name": "team/by-hand", "files": files, "note": "by hand"})
    assert (done.status_code, done.json()["version"]) == (201, 1)
    assert http.get(f"{NAMES}/team/by-hand/history").json()["history"][0]["note"] == "by hand"
    assert http.delete(f"{NAMES}/team/by-hand").json()["current"] == 0


def test_a_form_pushes_small_models_in_one_request(http, tmp_path):
    folder = encoder(tmp_path / "m", 7)
    parts = [("file", (file["path"], (folder / file["path"]).read_bytes())) for file in files_of(folder)]
    done = http.post(NAMES, data={"name": "team/form", "note": "in one"}, files=parts)
    assert (done.status_code, done.json()["version"]) == (201, 1), done.text
    vectors = http.post("/v1/embeddings", json={"model": "team/form", "input": "a fish"}).json()["data"]
    assert len(vectors[0]["embedding"]) == 32
    refused = http.post(NAMES, data={"name": "team/form2"}, files=[("file", ("../model.safetensors", b"x"))])
    assert (refused.status_code, listed(http) & {"team/form2"}) == (400, set())


@pytest.mark.parametrize(
    "path",
    ["../model.safetensors", "/etc/passwd", "a/../../b.json", "a\\b.json", "", ".", "config.json/", "a//b.json",
     "pytorch_model.bin", "model.pkl", "modeling.py", "conf\nig.json", "x" * 5000 + ".json"],
)  # fmt: skip
def test_a_path_that_leads_out_or_is_no_models_is_refused_before_a_byte(http, tmp_path, path):
    files = files_of(encoder(tmp_path / "m", 8))
    files.append({"path": path, "sha256": hashlib.sha256(b"x").hexdigest(), "size_bytes": 1})
    for refused in (
        http.post("/v1/uploads", json={"files": files}),
        http.post(NAMES, json={"name": "team/bad", "files": files}),
    ):
        assert refused.status_code == 400, refused.text
        assert refused.json()["detail"]["code"] == "INVALID_INPUT"


def _pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _link(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "elsewhere.safetensors")
    (folder / "model.safetensors").symlink_to(folder.parent / "elsewhere.safetensors")


def _zeros(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(bytes(1_000_000))


def _sparse(folder: Path) -> None:
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(10_000_000_000)


def _cut(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-100])


def _nan(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights[sorted(weights)[0]][0] = np.nan
    save_file(weights, folder / "model.safetensors")


def _code(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "modeling.Own"}}))


@pytest.mark.parametrize(
    ("spoil", "kind", "words"),
    [
        (_pickle, InvalidInput, "pickles"),
        (_link, InvalidInput, "link"),
        (_zeros, InvalidInput, "not a safetensors file"),
        (_sparse, PayloadTooLarge, "--max-artifact-bytes"),
        (_cut, InvalidInput, "cut short"),
        (_nan, ShoalError, "finite|NaN"),
        (_code, InvalidInput, "code of its own"),
    ],
)
def test_a_bad_folder_is_refused_with_the_reason_and_leaves_no_name(client, http, tmp_path, spoil, kind, words):
    folder = encoder(tmp_path / "m", 9)
    spoil(folder)
    with pytest.raises(kind, match=words) as refused:
        client.push(folder, "team/bad")
    assert 400 <= refused.value.status < 500
    assert "team/bad" not in listed(http)
    assert client.encode(VIRTUAL, TEXTS).shape[0] == 2


def test_a_bad_archive_is_refused_where_it_is_opened(client, http, tmp_path):
    with tarfile.open(tmp_path / "bomb.tar.gz", "w:gz") as archive:
        zeros = tmp_path / "model.safetensors"
        with zeros.open("wb") as file:
            file.truncate(150_000_000)
        archive.add(zeros, "m/model.safetensors")
    out = tarfile.TarInfo("../model.safetensors")
    link = tarfile.TarInfo("m/model.safetensors")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    for name, entry in (("out", out), ("link", link)):
        with tarfile.open(tmp_path / f"{name}.tar", "w") as archive:
            archive.addfile(entry)
    (tmp_path / "none.tar").write_bytes(b"nothing of the kind")
    for name, words in (
        ("bomb.tar.gz", "times its size"),
        ("out.tar", "out of it"),
        ("link.tar", "link"),
        ("none.tar", "archive"),
    ):
        with pytest.raises(InvalidInput, match=words):
            client.push(tmp_path / name, "team/bad")
    with pytest.raises(InvalidInput, match="neither a folder"):
        client.push(tmp_path / "nowhere", "team/bad")
    assert "team/bad" not in listed(http)


def test_what_is_declared_too_large_is_refused_before_a_byte_of_it(http, tmp_path):
    files = files_of(encoder(tmp_path / "m", 10))
    for file in files:
        if file["path"] == "model.safetensors":
            file["size_bytes"] = 10_000_000_000
    refused = http.post("/v1/uploads", json={"files": files})
    assert (refused.status_code, "--max-artifact-bytes" in refused.text) == (413, True)
    place = f"/v1/uploads/{'ab' * 32}"
    refused = http.put(place, params={"offset": 0, "size": 10**12}, content=b"x")
    assert (refused.status_code, "--max-artifact-bytes" in refused.text) == (413, True)
    refused = http.put(place, params={"offset": 0, "size": 20_000_000}, content=bytes(9_000_000))
    assert (refused.status_code, refused.json()["detail"]["limit"]) == (413, 8 * 1024 * 1024)
    many = [{"path": f"{n}.json", "sha256": f"{n:064x}", "size_bytes": 1} for n in range(2000)]
    refused = http.post("/v1/uploads", json={"files": many})
    assert (refused.status_code, "--max-artifact-files" in refused.text) == (413, True)


def test_what_is_not_what_it_was_announced_as_is_thrown_away(http, objects):
    sha256 = hashlib.sha256(b"what was meant").hexdigest()
    for parts in ([b"what was sent."], [b"what was", b" sent."]):
        offset = 0
        for part in parts:
            answer = http.put(f"/v1/uploads/{sha256}", params={"offset": offset, "size": 14}, content=part)
            offset += len(part)
        assert (answer.status_code, sha256 in answer.text) == (400, True)
        assert http.get(f"/v1/uploads/{sha256}", params={"size": 14}).json()["offset"] == 0
        assert not list(objects.rglob(f"*{sha256}*"))


@pytest.mark.parametrize(
    ("name", "base", "status", "words"),
    [
        (VIRTUAL, "", 409, "not pushed"),
        ("sentence-transformers/all-MiniLM-L6-v2", "", 409, "not pushed"),
        ("a/b/c", "", 400, "cannot name a model"),
        ("a:int8", "", 400, "cannot name a model"),
        ("team/adapter", "team/nobody", 404, "team/nobody"),
    ],
)
def test_what_can_be_told_of_a_name_is_told_before_files_are_read(
    client, http, tmp_path, name, base, status, words
):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ShoalError, match=words) as refused:
        client.push(tmp_path / "empty", name, base=base or None)
    assert refused.value.status == status
    files = files_of(encoder(tmp_path / "m", 11))
    for file in files:
        content = (tmp_path / "m" / file["path"]).read_bytes()
        http.put(f"/v1/uploads/{file['sha256']}", params={"size": len(content), "offset": 0}, content=content)
    answer = http.post(NAMES, json={"name": name, "base": base, "files": files})
    assert (answer.status_code, words in answer.text) == (status, True), answer.text


def test_of_two_pushes_of_one_name_at_once_each_is_whole_or_refused(running, http, tmp_path):
    folders = [encoder(tmp_path / str(seed), seed) for seed in (20, 21, 22)]

    def push(folder: Path) -> shoal.client.Pushed | ShoalError:
        with shoal.Client(running.url, timeout_s=WITHIN_S) as client:
            try:
                return client.push(folder, "team/contended")
            except Conflict as error:
                return error

    with ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(push, folders))
    done = [outcome for outcome in outcomes if not isinstance(outcome, ShoalError)]
    assert done
    state = http.get(f"{NAMES}/team/contended").json()
    assert {version["digest"] for version in state["versions"]} == {each.digest for each in done}
    assert sorted(version["version"] for version in state["versions"]) == list(range(1, len(done) + 1))


def test_a_push_of_what_is_there_says_so_and_its_note_goes_into_the_history(client, tmp_path):
    folder = encoder(tmp_path / "a", 31)
    first = client.push(folder, "team/noted", note="why")
    again = client.push(folder, "team/noted", note="as asked")
    assert [(done.version, done.new) for done in (first, again)] == [(1, True), (1, False)]
    assert [event["note"] for event in client.history("team/noted")] == ["why", "as asked"]


def test_a_push_that_is_sent_again_joins_the_one_under_way(running, http, tmp_path):
    """As a client does that lost its connection, when the server does not know yet that it did."""
    folder = encoder(tmp_path / "m", 25)
    said = {"name": "team/again", "files": files_of(folder)}
    for file in said["files"]:
        place = f"/v1/uploads/{file['sha256']}?offset=0&size={file['size_bytes']}"
        http.put(place, content=(folder / file["path"]).read_bytes()).raise_for_status()
    with ThreadPoolExecutor(4) as pool:
        answers = list(
            pool.map(lambda _: httpx.post(f"{running.url}{NAMES}", json=said, timeout=WITHIN_S), "1234")
        )
    assert {(answer.status_code, answer.json().get("version")) for answer in answers} == {(201, 1)}
    assert http.get(f"{NAMES}/team/again").json()["changes"] == 1


def uploaded(objects: Path) -> int:
    """Bytes of files that are not complete yet."""
    sizes = []
    for path in (objects / "uploads").rglob("*") if (objects / "uploads").is_dir() else ():
        try:
            sizes.append(path.stat().st_size if path.is_file() else 0)
        except FileNotFoundError:
            continue
    return sum(sizes)


def until(condition: Callable[[], Any], within_s: float = WITHIN_S) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


KILLED = """
import os, sys, shoal
def progress(stage, done, total):
    if stage.startswith("sending model") and done > 5_000_000:
        os.kill(os.getpid(), 9)
shoal.Client(sys.argv[1]).push(sys.argv[2], "team/large", progress=progress)
"""


def test_a_push_whose_client_is_killed_halfway_shows_nothing_and_goes_on(running, objects, client, http, tmp_path):
    folder = encoder(tmp_path / "m", 30, padding_bytes=20_000_000)
    words = [sys.executable, "-c", KILLED, running.url, str(folder)]
    assert subprocess.run(words, check=False, timeout=WITHIN_S).returncode == -signal.SIGKILL
    assert "team/large" not in listed(http)
    with pytest.raises(ModelNotFound):
        client.encode("team/large", TEXTS)
    here = uploaded(objects)
    assert here > 5_000_000
    done = client.push(folder, "team/large")
    assert (done.version, done.size_bytes - done.sent_bytes >= here) == (1, True)
    assert client.encode("team/large", TEXTS).shape == (2, 32)


def test_a_server_that_is_killed_halfway_gets_the_rest_when_it_is_back(virtual_home, tmp_path):
    folder, objects = encoder(tmp_path / "m", 31, padding_bytes=20_000_000), tmp_path / "objects"
    port, is_killed = free_port(), threading.Event()
    words = ["serve", "--port", str(port), "--home", str(virtual_home), "--objects", str(objects)]

    def start() -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-m", "shoal", *words], stderr=subprocess.DEVNULL)

    process = start()

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal process
        if stage.startswith("sending model") and done > 5_000_000 and not is_killed.is_set():
            is_killed.set()
            process.kill()
            process.wait()
            process = start()

    try:
        with shoal.Client(f"http://127.0.0.1:{port}", timeout_s=WITHIN_S, connect_retry_s=60.0) as client:
            until(client.ready)
            assert client.push(folder, "team/survivor", progress=progress).version == 1
            assert is_killed.is_set()
            assert client.encode("team/survivor", TEXTS).shape == (2, 32)
    finally:
        process.terminate()
        process.wait(60)


def slow_to_read(folder: Path) -> Path:
    """Its tokenizer is read in milliseconds and takes minutes for a text."""
    tokenizer = json.loads((encoder(folder) / "tokenizer.json").read_text())
    search = {"type": "Replace", "pattern": {"Regex": "[a-z ]{1,30}[a-z ]{1,30}[a-z ]{1,30}!"}, "content": "!"}
    tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [search] * 1000}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def test_a_model_that_takes_too_long_to_try_is_given_up_and_keeps_nobody_else_from_pushing(virtual_home, tmp_path):
    with (
        serving(virtual_home, "--objects", str(tmp_path / "objects"), "--prove-within", "30") as server,
        shoal.Client(server.url, timeout_s=WITHIN_S) as client,
    ):
        slow = slow_to_read(tmp_path / "slow")
        with pytest.raises(InvalidInput, match=r"longer than the limit of 30 s; --prove-within") as refused:
            client.push(slow, "team/slow")
        assert refused.value.detail["reason"] == "TOO_SLOW"
        assert client.push(encoder(tmp_path / "quick", 7), "team/quick").version == 1
        assert client.encode("team/quick", TEXTS).shape == (2, 32)
        with pytest.raises(ModelNotFound):
            client.pushed("team/slow")
        until = time.monotonic() + WITHIN_S
        while len(server.runtime_pids()) > 1 and time.monotonic() < until:
            time.sleep(0.1)
        assert len(server.runtime_pids()) == 1, "the process of the one that was given up is gone"


def test_the_verbs_push_alias_roll_back_and_remove(running, tmp_path):
    folder = encoder(tmp_path / "m", 40)

    def run(*words: str) -> tuple[int, str, str]:
        environment = os.environ | {"SHOAL_URL": running.url, "SHOAL_HOME": str(tmp_path / "home")}
        ran = subprocess.run(
            [sys.executable, "-m", "shoal", *words], capture_output=True, text=True, check=False, env=environment
        )
        return ran.returncode, ran.stdout, ran.stderr

    code, out, err = run("push", str(folder), "--name", "team/verbs", "--note", "first")
    assert (code, "team/verbs, version 1" in out, "32 dims" in out) == (0, True, True), err
    ask = out.strip().splitlines()[-1].removeprefix("Ask it: shoal ")
    assert ask == 'encode team/verbs "a text"'
    assert run("encode", "team/verbs", "a fish")[0] == 0
    (tmp_path / "reference.jsonl").write_text(run("encode", "team/verbs", "a fish", "paris", "--json")[1])
    code, out, err = run(
        "push", str(folder), "--name", "team/verbs2", "--reference", str(tmp_path / "reference.jsonl"), "--dry-run"
    )
    assert (code, "2 rows" in out, "nothing was kept" in out) == (0, True, True), err
    assert run("alias", "team/verbs@prod")[1] == "team/verbs is version 1; team/verbs@prod is version 1\n"
    encoder(folder, 41)
    assert run("push", str(folder), "--name", "team/verbs")[0] == 0
    assert run("rollback", "team/verbs")[1].startswith("team/verbs is version 1;")
    assert run("rollback", "team/verbs", "--to", "2")[1].startswith("team/verbs is version 2;")
    code, out, _ = run("history", "team/verbs")
    assert (code, len(out.splitlines()), "first" in out) == (0, 6, True)
    assert len(json.loads(run("history", "team/verbs", "--json")[1])) == 5
    assert run("rm", "team/verbs@prod")[0] == run("rm", "team/verbs")[0] == 0
    code, _, err = run("rm", "team/verbs")
    assert (code, "MODEL_NOT_FOUND" in err, "was removed" in err) == (1, True, True)
    code, _, err = run("push", str(tmp_path / "home"), "--name", "team/verbs")
    assert (code, "Traceback" in err) == (1, False)
    assert run("alias", "team/verbs", "1")[0] == 1
