"""Every route of a running server against every kind of key: none answers without one, and none does more than
the key's scopes allow.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import shoal
from names import VIRTUAL
from shoal.catalog.keys import Keys, make
from shoal.catalog.objects import Objects
from shoal.dialects import all_dialects
from shoal.gateway import push_routes
from shoal.protocol.errors import Forbidden, Unauthorized
from shoal.testing.checkpoints import tiny_encoder
from shoal.testing.server import Server, serving

OPEN = {"/livez", "/healthz", "/readyz", "/health", "/"}
PAGES = ["/info", "/v1/models", f"/v1/models/{VIRTUAL}", "/metrics", "/status"]
WITHIN_S = 120.0


def computing() -> list[tuple[str, str]]:
    routes = {(route.method, route.path) for dialect in all_dialects().values() for route in dialect.routes}
    return sorted((method, path.replace("{model}", VIRTUAL)) for method, path in routes)


def about_pushed(name: str, *, changing: bool) -> list[tuple[str, str]]:
    """Each route of push with a method that changes something, or with one that only looks."""
    words = {"name": name, "alias": "prod", "sha256": "ab" * 32}
    found = []
    for place, pattern in push_routes._PATHS:
        path = pattern.pattern
        for group, value in words.items():
            for shape in (".+", "[^/]+"):
                path = path.replace(f"(?P<{group}>{shape})", value)
        found += [(method, path) for method in push_routes._ROUTES[place]]
    return [(method, path) for method, path in found if (method in ("GET", "HEAD")) != changing]


@pytest.fixture(scope="module")
def keyed(virtual_home, tmp_path_factory) -> Iterator[tuple[Server, dict[str, str], Path]]:
    """A server, keys by what they are for, and where the server finds them."""
    folder = tmp_path_factory.mktemp("objects")
    objects, now = Objects.open(str(folder)), time.time()

    async def make_all() -> dict[str, str]:
        keys, made = Keys(objects), {}
        for name, scopes in (
            ("infer", ["infer"]), ("push", ["push:team/*"]), ("both", ["infer", "push:team/*"]),
            ("admin", ["admin"]), ("revoked", ["admin"]),
        ):  # fmt: skip
            made[name] = await keys.create(name, scopes, now)
        await keys.revoke("revoked", now)
        made["expired"], key = make("expired", ["admin"], now - 10, expires=now - 5)
        await objects.create(f"keys/{key.id}.json", msgspec.json.encode(key))
        return made | {"wrong": "shoal_" + "0" * 12 + "_" + "0" * 64, "other": "open sesame"}

    keys = asyncio.run(make_all())
    with serving(virtual_home, "--host", "0.0.0.0", "--objects", str(folder)) as server:
        yield server, keys, folder


@pytest.fixture
def http(keyed) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=keyed[0].url, timeout=WITHIN_S) as client:
        yield client


def ask(http: httpx.Client, method: str, path: str, key: str = "") -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return http.request(method, path, headers=headers | {"content-type": "application/json"}, content=b"{}")


def test_no_route_answers_without_a_key_that_is_good(keyed, http):
    _, keys, _ = keyed
    routes = [*computing(), *about_pushed("team/a", changing=True), *about_pushed("team/a", changing=False)]
    routes += [("GET", path) for path in PAGES] + [("HEAD", "/v1/models")]
    assert len(routes) > 30
    for method, path in routes:
        for bad in ("", "wrong", "other", "revoked", "expired"):
            answer = ask(http, method, path, keys.get(bad, ""))
            assert answer.status_code == 401, (method, path, bad, answer.text)
            if method != "HEAD" and bad in ("revoked", "expired"):
                assert bad in answer.text, (path, answer.text)
    for path in OPEN:
        assert ask(http, "GET", path).status_code == 200
    assert ask(http, "GET", "/health").json()["workers"] == []


def test_a_key_computes_only_with_the_scope_for_it(keyed, http):
    _, keys, _ = keyed
    for method, path in computing():
        refused = ask(http, method, path, keys["push"])
        assert (refused.status_code, "the scope infer" in refused.text) == (403, True), path
        assert "FORBIDDEN" in refused.text
        for may in ("infer", "both", "admin"):
            assert ask(http, method, path, keys[may]).status_code not in (401, 403), path


def test_of_several_keys_in_one_request_none_counts(keyed, http):
    _, keys, _ = keyed
    good, bad = ("authorization", f"Bearer {keys['admin']}"), ("authorization", "Bearer x")
    for several in ([good, bad], [bad, good], [good, good]):
        assert http.get("/v1/models", headers=several).status_code == 401
    assert http.get("/v1/models", headers=[good, ("x-a", "1"), ("x-a", "2")]).status_code == 200


def test_a_key_changes_only_names_that_its_scope_has(keyed, http):
    _, keys, _ = keyed
    for method, path in about_pushed("team/a", changing=True):
        refused = ask(http, method, path, keys["infer"])
        assert (refused.status_code, "the scope push:" in refused.text) == (403, True), path
        assert ask(http, method, path, keys["push"]).status_code not in (401, 403), path
    for written in ("other/a", "other__a", "team", "teammate/a", "other__a@3"):
        for method, path in about_pushed(written, changing=True):
            if "/configs/models/" in path:
                refused = ask(http, method, path, keys["both"])
                assert refused.status_code == 403, (method, path, refused.text)
                assert ask(http, method, path, keys["admin"]).status_code not in (401, 403), path
    said = {"name": "other/a", "files": [{"path": "config.json", "sha256": "ab" * 32, "size_bytes": 1}]}
    headers = {"authorization": f"Bearer {keys['both']}"}
    assert http.post("/v1/configs/models", json=said, headers=headers).status_code == 403
    form = {"data": {"name": "other/a"}, "files": [("file", ("config.json", b"{}"))]}
    assert http.post("/v1/configs/models", headers=headers, **form).status_code == 403
    assert http.get("/v1/uploads?name=other/a", headers=headers).status_code == 403


def test_every_good_key_may_look(keyed, http):
    _, keys, _ = keyed
    for path in PAGES:
        for may in ("infer", "push", "admin"):
            assert ask(http, "GET", path, keys[may]).status_code == 200, path
    assert ask(http, "GET", "/v1/configs/models", keys["infer"]).json() == {"models": []}


def test_a_body_is_not_read_for_whoever_may_not_send_it(keyed, http):
    _, keys, _ = keyed
    for key, status in (("", 401), (keys["infer"], 403)):
        headers = {"authorization": f"Bearer {key}"} if key else {}
        refused = http.put(f"/v1/uploads/{'ab' * 32}?offset=0&size=9", headers=headers, content=bytes(8_000_000))
        assert refused.status_code == status
        assert refused.headers["connection"] == "close"  # the rest of it was never waited for


def test_whoever_watches_needs_a_key_too(keyed):
    server, keys, _ = keyed
    url = f"ws://127.0.0.1:{server.port}/ws/cluster-status"
    for bad in ("", "expired", "wrong"):
        headers = {"authorization": f"Bearer {keys[bad]}"} if bad else {}
        with pytest.raises(InvalidStatus) as refused:
            connect(url, additional_headers=headers)
        assert refused.value.response.status_code == 401
    with connect(url, additional_headers={"authorization": f"Bearer {keys['push']}"}) as watching:
        assert b"cluster" in watching.recv(decode=False)


def test_the_client_says_what_a_key_lacks_and_a_push_is_signed_with_it(keyed, tmp_path):
    server, keys, _ = keyed
    tiny_encoder(tmp_path / "m")
    with shoal.Client(server.url, keys["infer"], timeout_s=WITHIN_S) as client:
        assert client.encode(VIRTUAL, "a").ndim == 1
        with pytest.raises(Forbidden, match="push:team/signed"):
            client.push(tmp_path / "m", "team/signed")
    with shoal.Client(server.url, keys["push"], timeout_s=WITHIN_S) as client:
        assert client.push(tmp_path / "m", "team/signed").version == 1
        with pytest.raises(Forbidden, match="infer"):
            client.encode("team/signed", "a")
        (event,) = client.history("team/signed")
        assert event["who"] == f"push ({keys['push'].split('_')[1]})"
        client.remove("team/signed")
    for key in (None, keys["expired"]):
        with shoal.Client(server.url, key) as client, pytest.raises(Unauthorized):
            client.models()
    assert keys["push"].rpartition("_")[2] not in server.log.read_text()


def test_a_server_that_runs_follows_keys_that_come_and_go(keyed, http):
    _, _, folder = keyed
    keys = Keys(Objects.open(str(folder)))

    def status_within(key: str, wanted: int) -> int:
        end = time.monotonic() + WITHIN_S
        while (status := ask(http, "GET", "/v1/models", key).status_code) != wanted and time.monotonic() < end:
            time.sleep(0.1)
        return status

    plain = asyncio.run(keys.create("late", ["infer"], time.time()))
    assert status_within(plain, 200) == 200
    asyncio.run(keys.revoke("late", time.time()))
    assert status_within(plain, 401) == 401
