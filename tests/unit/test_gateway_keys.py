"""Keys on every way into the application, as ASGI calls without a network: the long way, and the short one by
which requests are refused while a line is too long.
"""

import hashlib
import itertools
import time
from collections.abc import MutableMapping
from typing import Any

import msgspec
import pytest

from names import VIRTUAL
from shoal.catalog.keys import make
from shoal.catalog.store import Store
from shoal.gateway.access import Access, Ring
from shoal.gateway.app import Gateway
from shoal.gateway.early import Early
from shoal.gateway.overview import Counts
from shoal.gateway.pages import Pages
from shoal.gateway.settings import GatewaySettings
from shoal.protocol.envelope import Envelope, Job
from shoal.protocol.errors import QueueFull
from shoal.queue import Limits
from shoal.queue.inprocess import InProcessQueue

STATIC = GatewaySettings(keys=frozenset({hashlib.sha256(b"open sesame").digest()}))
BODY = b'{"model": "shoal/virtual-encoder", "input": "a"}'


class Full(InProcessQueue):
    """Every line is too long."""

    def refusal(self, line: str, priority: Any, deadline: float) -> QueueFull:
        return QueueFull("the line is too long")


def access_with(*scopes: str) -> tuple[Access, bytes]:
    plain, key = make("ci", scopes, time.time())
    access = Access()
    access._ring = Ring(stored={key.id: key})
    return access, f"Bearer {plain}".encode()


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store(tmp_path)
    store.add(VIRTUAL)
    return store


def gateway(
    store: Store, settings=STATIC, access: Access | None = None, queue: InProcessQueue | None = None
) -> Gateway:
    queue = queue or InProcessQueue(Limits())
    pages = Pages(store, dict, queue, lambda: "", b"")
    return Gateway(queue, store, dict, pages, settings, access)


async def ask(
    app: Gateway, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, dict[str, Any]]:
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": raw,
        "state": {},
    }
    await app(scope, receive, send)
    data = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], msgspec.json.decode(data) if data.startswith(b"{") else {}


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/uploads"), ("GET", "/v1/configs/models"), ("DELETE", "/v1/configs/models/a")],
)
async def test_without_an_object_store_nothing_can_be_pushed_and_the_option_is_named(store, method, path):
    app = gateway(store)
    assert (await ask(app, method, path))[0] == 401
    status, said = await ask(app, method, path, authorization="Bearer open sesame")
    assert (status, "--objects" in said["error"]["message"]) == (404, True)


async def test_a_job_carries_the_id_of_the_key_it_came_with(store):
    seen: list[Envelope] = []

    class Looking(InProcessQueue):
        async def publish(self, job: Job) -> Any:
            seen.append(job.envelope)
            raise QueueFull("seen enough")

    access, bearer = access_with("infer")
    for settings, door, key, tenant in (
        (STATIC, None, "Bearer open sesame", hashlib.sha256(b"open sesame").hexdigest()[:12]),
        (GatewaySettings(), access, bearer.decode(), bearer.split(b"_")[1].decode()),
        (GatewaySettings(), None, "Bearer whatever", ""),
    ):
        app = gateway(store, settings, door, Looking(Limits()))
        assert (await ask(app, "POST", "/v1/embeddings", BODY, authorization=key))[0] == 503
        assert seen[-1].tenant == tenant


async def test_whoever_has_no_key_is_not_even_told_that_a_line_is_full(store):
    access, bearer = access_with("infer")
    pusher, of_pusher = access_with("push:*")

    def reply(door: Access, authorization: bytes) -> bytes | None:
        early = Early(
            Full(Limits()), lambda target, body: store.resolve(VIRTUAL), GatewaySettings(), door,
            map(str, itertools.count()), Counts(),
        )  # fmt: skip
        pairs = [(b"content-type", b"application/json"), (b"authorization", authorization)]
        return early.reply(b"/v1/embeddings", pairs, BODY)

    full = reply(access, bearer)
    assert full is not None
    assert b"QUEUE_FULL" in full
    for door, wrong in ((access, b""), (access, bearer[:-1]), (pusher, of_pusher)):
        assert reply(door, wrong) is None  # it goes the long way, where 401 and 403 are said
    app = gateway(store, GatewaySettings(), pusher, Full(Limits()))
    assert (await ask(app, "POST", "/v1/embeddings", BODY, authorization=of_pusher.decode()))[0] == 403
