"""Bodies, forms and parts of files that no client should send, on every route that changes something."""

import asyncio
import json
import random

import httpx
import pytest

from shoal.gateway import push_bodies
from shoal.protocol.errors import ShoalError
from shoal.testing.malformed import TEMPLATES, malformed
from shoal.testing.server import Server, serving

COUNT = 3000
NAMES = "/v1/configs/models"
SHA256 = "ab" * 32
ROUTES = {
    "uploads": ("POST", "/v1/uploads"),
    "push": ("POST", NAMES),
    "alias": ("PUT", f"{NAMES}/team__never/aliases/prod"),
    "rollback": ("POST", f"{NAMES}/team__never/rollback"),
}


@pytest.fixture(scope="module")
def running(tmp_path_factory, virtual_home):
    with serving(virtual_home, "--objects", str(tmp_path_factory.mktemp("objects"))) as server:
        yield server


async def send(running: Server, requests: list[tuple[str, str, dict[str, str], bytes]]) -> None:
    """Each is refused with a 4xx, and afterwards nothing has a name and the server is well."""
    gate = asyncio.Semaphore(16)

    async def ask(client: httpx.AsyncClient, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        async with gate:
            answer = await client.request(method, path, headers=headers, content=body)
        assert 400 <= answer.status_code < 500, (method, path, headers, body[:300], answer.text)
        assert answer.headers["x-sie-error-code"]

    async with httpx.AsyncClient(base_url=running.url, timeout=60) as client:
        await asyncio.gather(*(ask(client, *request) for request in requests))
        assert (await client.get(NAMES)).json() == {"models": []}
        assert (await client.get("/livez")).text == "ok"


def is_manifest(headers: dict[str, str], body: bytes) -> bool:
    """A body that was spoilt and is still a question that can be answered."""
    try:
        push_bodies.read(push_bodies.Manifest, body, headers.get("content-type", ""))
    except ShoalError:
        return False
    return True


@pytest.mark.parametrize("route", sorted(ROUTES))
async def test_malformed_bodies_get_a_4xx_and_change_nothing(running, route):
    spoilt = [malformed(route, seed) for seed in range(COUNT)]
    if route == "uploads":
        spoilt = [request for request in spoilt if not is_manifest(*request)]
    assert len(spoilt) > COUNT / 2
    await send(running, [(*ROUTES[route], headers, body) for headers, body in spoilt])


async def test_so_do_malformed_forms(running):
    boundary = "the-boundary"
    parts = [
        f'--{boundary}\r\ncontent-disposition: form-data; name="{name}"{more}\r\n\r\n{value}\r\n'
        for name, more, value in (
            ("name", "", "team/never"),
            ("base", "", "org/m"),
            ("reference", "", json.dumps({"text": "a", "values": [1.0]})),
            ("file", '; filename="config.json"', "{}"),
            ("file", '; filename="1_Pooling/config.json"', "{}"),
        )
    ]
    whole = f"{''.join(parts)}--{boundary}--\r\n".encode()
    random_ = random.Random(6)
    requests = []
    for _ in range(COUNT):
        body = bytearray(whole)
        for _ in range(random_.randint(1, 6)):
            at = random_.randrange(len(body))
            match random_.randrange(4):
                case 0:
                    body[at] ^= 1 << random_.randrange(8)
                case 1:
                    del body[at + 1 : at + random_.randint(2, 40)]
                case 2:
                    body[at:at] = random_.choice((b"\r\n", b"--", b'"', b"\0", b"../", b"\xff", b"name=", whole))
                case _:
                    body = body[:at] or bytearray(b"-")
        said = random_.choice((boundary, boundary, boundary, "x", '"', "a" * 500))
        requests.append(("POST", NAMES, {"content-type": f"multipart/form-data; boundary={said}"}, bytes(body)))
    await send(running, requests)


async def test_so_do_parts_of_files_that_cannot_be(running):
    odd = ("-1", "0x10", "1e3", "9" * 30, "", " 1", "１", "nan", "%00", "1&offset=0&size=-1")
    shas = (
        SHA256[:-1],
        SHA256.upper(),
        "..",
        "%2e%2e%2fblobs",
        SHA256 + "%00",
        "z" * 64,
        "a" * 5000,
        "%f0%9f%90%9f",
    )
    paths = [f"/v1/uploads/{SHA256}?size={size}&offset=0" for size in odd]
    paths += [f"/v1/uploads/{SHA256}?size=100&offset={offset}" for offset in odd]
    paths += [f"/v1/uploads/{sha}?size=100&offset=0" for sha in shas]
    paths += [
        f"/v1/uploads/{SHA256}?{query}" for query in ("", "size=100", "offset=0", "size=5&offset=3", "size=3")
    ]
    requests = [("PUT", path, {}, b"some bytes") for path in paths]
    requests += [("PUT", f"/v1/uploads/{SHA256}?size=10&offset=0", {}, b"some bytes")]  # have another hash
    await send(running, requests)


def test_every_route_that_takes_a_body_is_covered():
    assert ROUTES.keys() <= TEMPLATES.keys()
