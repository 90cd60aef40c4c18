"""What the SDK shows of a cluster: its watch and its capacity, unchanged, against a running server."""

import asyncio
import itertools
import json

import httpx
import pytest
import sie_sdk
import websockets.exceptions
from sie_sdk.client.errors import RequestError
from websockets.sync.client import connect

from names import VIRTUAL
from shoal.testing.server import serving

pytestmark = pytest.mark.clients


def ask(url: str) -> None:
    body = {"model": VIRTUAL, "input": ["a harbour", "at dawn"]}
    httpx.post(f"{url}/v1/embeddings", json=body, timeout=60).raise_for_status()


def hear(watcher, messages: int) -> None:
    for _ in range(messages):
        assert json.loads(watcher.recv(timeout=60))["workers"]


def test_the_sdk_watches_a_model_being_loaded_and_requests_coming_in(virtual_server):
    with sie_sdk.SIEClient(virtual_server.url, api_key="") as sdk:
        watched = sdk.watch()
        first = next(watched)
        assert [worker["healthy"] for worker in first["workers"]] == [True]
        assert first["cluster"]["worker_count"] == 1
        assert {model["name"]: model["state"] for model in first["models"]}[VIRTUAL] == "available"
        ask(virtual_server.url)
        later = next(m for m in itertools.islice(watched, 30) if m["cluster"]["total_qps"] > 0)
        watched.close()
    assert later["timestamp"] > first["timestamp"]
    assert later["cluster"]["models_loaded"] == 1
    assert later["workers"][0]["loaded_models"] == [VIRTUAL]
    model = next(model for model in later["models"] if model["name"] == VIRTUAL)
    assert (model["state"], model["worker_count"], model["total_queue_depth"]) == ("loaded", 1, 0)


def test_the_asynchronous_sdk_watches_too(virtual_server):
    async def first():
        async with sie_sdk.SIEAsyncClient(virtual_server.url, api_key="") as sdk:
            watched = sdk.watch()
            message = await anext(watched)
            await watched.aclose()
            return message

    assert asyncio.run(first())["cluster"]["worker_count"] == 1


def test_the_sdk_reads_the_capacity_of_a_server(virtual_server):
    ask(virtual_server.url)
    with sie_sdk.SIEClient(virtual_server.url, api_key="") as sdk:
        capacity = sdk.get_capacity()
        assert (capacity["status"], capacity["worker_count"], capacity["models_loaded"]) == ("healthy", 1, 1)
        (worker,) = capacity["workers"]
        assert (worker["healthy"], worker["loaded_models"]) == (True, [VIRTUAL])
        assert 0 < worker["memory_used_bytes"] < worker["memory_total_bytes"]
        assert sdk.get_capacity(gpu="no-such")["worker_count"] == 0


def test_a_key_is_asked_for_and_without_one_health_names_nobody(virtual_home):
    with serving(virtual_home, SHOAL_API_KEY="a key") as server:
        with sie_sdk.SIEClient(server.url, api_key="a key") as sdk:
            assert next(sdk.watch())["workers"]
            assert sdk.get_capacity()["workers"]
        with sie_sdk.SIEClient(server.url, api_key="another") as sdk, pytest.raises(RequestError, match="401"):
            next(sdk.watch())
        bare = httpx.get(f"{server.url}/health", timeout=60).json()
        assert (bare["workers"], bare["cluster"]["worker_count"]) == ([], 1)


def test_there_is_nothing_to_watch_elsewhere_and_no_more_room_than_there_is(virtual_server):
    url = virtual_server.url.replace("http", "ws")
    with pytest.raises(websockets.exceptions.InvalidStatus, match="404"):
        connect(f"{url}/ws/status")
    watching = [connect(f"{url}/ws/cluster-status") for _ in range(64)]
    with pytest.raises(websockets.exceptions.InvalidStatus, match="503"):
        connect(f"{url}/ws/cluster-status")
    watching.pop().close()
    assert json.loads(watching[0].recv())["cluster"]["worker_count"] == 1
    assert virtual_server.stop() == 0  # with all of them still there
    with pytest.raises(websockets.exceptions.ConnectionClosed):
        hear(watching[0], 10)
    for watcher in watching:
        watcher.close()


def test_a_watcher_that_talks_too_much_is_let_go_and_the_others_stay(virtual_server):
    url = f"{virtual_server.url.replace('http', 'ws')}/ws/cluster-status"
    with connect(url) as quiet, connect(url) as loud:
        loud.send("hello")
        hear(loud, 2)
        loud.send("x" * 100_000)
        with pytest.raises(websockets.exceptions.ConnectionClosedError, match="1009"):
            hear(loud, 10)
        hear(quiet, 2)
