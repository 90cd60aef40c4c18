"""What must not be lost, doubled or waited for when things break: real server, real processes, kill -9."""

import asyncio
import os
import signal
import time

import httpx
import numpy as np
import pytest

from names import MINILM, VIRTUAL, VIRTUAL_RERANKER
from shoal.catalog.store import Store
from shoal.testing.server import serving

JSON = {"accept": "application/json"}


def encode_body(*texts: str) -> dict:
    return {"items": [{"text": text} for text in texts]}


async def encode(client: httpx.AsyncClient, *texts: str, model=VIRTUAL, **headers: str) -> httpx.Response:
    return await client.post(f"/v1/encode/{model}", json=encode_body(*texts), headers=JSON | headers)


def client_of(server, **more) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, timeout=60, limits=httpx.Limits(max_connections=500), **more)


def metric(server, name: str) -> float:
    page = httpx.get(f"{server.url}/metrics").text
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))


def state_of(server, model: str) -> str:
    return httpx.get(f"{server.url}/v1/models/{model}").json()["state"]


@pytest.mark.models
async def test_a_runtime_killed_twenty_times_under_load_loses_nothing_and_answers_nothing_twice(home):
    texts = [f"sentence number {number} about topic {number % 7}" for number in range(40)]
    with serving(home, "--pin", MINILM) as server:
        async with client_of(server) as client:
            known = {text: vector(await encode(client, text, model=MINILM)) for text in texts}
            done: list[tuple[str, httpx.Response]] = []
            killed = asyncio.Event()

            async def ask(number: int) -> None:
                while not killed.is_set():
                    text = texts[(number + len(done)) % len(texts)]
                    done.append((text, await encode(client, text, model=MINILM)))

            before = metric(server, "shoal_items_total")
            asking = [asyncio.create_task(ask(number)) for number in range(24)]
            await kill_runtimes(server, 20)
            killed.set()
            await asyncio.gather(*asking)
            statuses = {response.status_code for _, response in done}
            assert statuses == {200}, [r.text for _, r in done if r.status_code != 200][:3]
            for text, response in done:
                assert float(vector(response) @ known[text]) > 0.9995, "another's answer"
            assert metric(server, "shoal_items_total") - before == len(done), "one answer a request"
            assert metric(server, "shoal_runtime_deaths_total") == 20


async def kill_runtimes(server, times: int) -> None:
    """kill -9 the runtime that many times, each time once it has come back and answered again."""
    for _ in range(times):
        answered = metric(server, "shoal_batches_total")
        while metric(server, "shoal_batches_total") < answered + 5:
            await asyncio.sleep(0.05)
        for pid in server.runtime_pids():
            os.kill(pid, signal.SIGKILL)


def vector(response: httpx.Response) -> np.ndarray:
    assert response.status_code == 200, response.text
    return np.array(response.json()["items"][0]["dense"]["values"], "f4")


async def test_an_item_that_kills_its_runtime_twice_alone_fails_typed_and_its_neighbours_succeed(virtual_server):
    async with client_of(virtual_server) as client:
        poison = asyncio.create_task(encode(client, "before", "shoal:virtual:die", "after"))
        others = await asyncio.gather(*(encode(client, f"text {number}") for number in range(20)))
        items = (await poison).json()["items"]
    assert [response.status_code for response in others] == [200] * 20
    assert items[1]["error"]["code"] == "RUNTIME_CRASHED"
    assert "dense" in items[0]
    assert "dense" in items[2]
    assert metric(virtual_server, "shoal_runtime_deaths_total") == 3, "once among others, twice alone"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("shoal:virtual:nan", "NON_FINITE_OUTPUT"),
        ("shoal:virtual:raise", "INFERENCE_ERROR"),
        ("shoal:virtual:oom", "INFERENCE_ERROR"),
    ],
)
async def test_an_item_whose_computation_fails_gets_a_typed_error_and_its_neighbours_succeed(
    virtual_server, text, code
):
    async with client_of(virtual_server) as client:
        items = (await encode(client, "one", text, "three", "four")).json()["items"]
    assert [item.get("error", {}).get("code") for item in items] == [None, code, None, None]
    assert metric(virtual_server, "shoal_runtime_deaths_total") == 0


async def test_on_sigterm_what_was_accepted_is_answered_and_the_runtimes_are_gone(virtual_home):
    with serving(virtual_home) as server:
        async with client_of(server) as client:
            await encode(client, "warm")
            pids = server.runtime_pids()
            asked = [asyncio.create_task(encode(client, f"shoal:virtual:slow=0.3 {n}")) for n in range(30)]
            await until(lambda: metric(server, "shoal_requests_in_flight") >= 30)
            server.process.send_signal(signal.SIGTERM)
            answers = await asyncio.gather(*asked)
        assert [response.status_code for response in answers] == [200] * 30
        assert await asyncio.to_thread(server.process.wait, 30) == 0
        assert not any(alive(pid) for pid in pids)


async def test_a_client_that_went_away_costs_no_device_time(virtual_server):
    async with client_of(virtual_server) as client:
        await encode(client, "warm")
        computed = metric(virtual_server, "shoal_batch_items_sum")
        blocking = [asyncio.create_task(encode(client, f"shoal:virtual:slow=4 {n}")) for n in range(2)]
        await until(lambda: metric(virtual_server, "shoal_requests_in_flight") >= 2)
        await asyncio.sleep(0.1)
        leaving = [asyncio.create_task(encode(client, *[f"never {n} {m}" for m in range(50)])) for n in range(20)]
        await until(lambda: metric(virtual_server, "shoal_requests_in_flight") >= 22)
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        assert [response.status_code for response in await asyncio.gather(*blocking)] == [200, 200]
        await until(lambda: metric(virtual_server, "shoal_requests_in_flight") == 0)
        await encode(client, "after")
    items = metric(virtual_server, "shoal_batch_items_sum") - computed
    assert items < 600, "of a thousand texts that nobody waits for, at most the windows already handed over ran"


async def until(holds, within_s=20.0) -> None:
    end = time.monotonic() + within_s
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < end, "it did not come to pass"
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_request_whose_model_is_still_loading_at_its_deadline_is_told_so_and_the_load_goes_on(home):
    with serving(home) as server:
        async with client_of(server) as client:
            early = await encode(client, "hello", model=MINILM, **{"x-shoal-timeout-ms": "30"})
            assert (early.status_code, early.json()["error"]["code"]) == (503, "MODEL_LOADING")
            assert int(early.headers["retry-after"]) >= 1
            await until(lambda: state_of(server, MINILM) == "loaded")


async def test_a_request_not_answered_by_its_deadline_is_a_504_that_names_the_setting(virtual_server):
    async with client_of(virtual_server) as client:
        await encode(client, "warm")
        late = await encode(client, "shoal:virtual:slow=5", **{"x-shoal-timeout-ms": "200"})
    assert (late.status_code, late.headers["x-sie-error-code"]) == (504, "GATEWAY_TIMEOUT")
    assert "--timeout" in late.text


async def test_many_requests_for_a_cold_model_load_it_once(virtual_server):
    async with client_of(virtual_server) as client:
        answers = await asyncio.gather(*(encode(client, f"text {n}") for n in range(50)))
    assert {response.status_code for response in answers} == {200}
    assert len(virtual_server.runtime_pids()) == 1


async def test_a_model_makes_room_for_another_under_the_budget_and_its_process_is_gone(fresh_virtual_home):
    """The budget fits one stand-in; a pinned one would stay."""
    with serving(fresh_virtual_home, "--memory", "160MB") as server:
        async with client_of(server) as client:
            assert (await encode(client, "one")).status_code == 200
            (first,) = server.runtime_pids()
            body = {"query": {"text": "q"}, "items": [{"text": "d"}]}
            answer = await client.post(f"/v1/score/{VIRTUAL_RERANKER}", json=body, headers=JSON)
            assert answer.status_code == 200, answer.text
            assert not alive(first)
            assert len(server.runtime_pids()) == 1


async def test_what_does_not_fit_beside_a_pinned_model_is_refused_naming_the_setting(fresh_virtual_home):
    body = {"query": {"text": "q"}, "items": [{"text": "d"}]}
    with serving(fresh_virtual_home) as server:  # both are measured
        async with client_of(server) as client:
            assert (await encode(client, "one")).status_code == 200
            assert (await client.post(f"/v1/score/{VIRTUAL_RERANKER}", json=body)).status_code == 200
            one = max(state["memory_bytes"] for state in (await client.get("/v1/models")).json()["models"])
    with serving(fresh_virtual_home, "--memory", f"{int(one * 1.4)}", "--pin", VIRTUAL) as server:
        async with client_of(server) as client:
            answer = await client.post(f"/v1/score/{VIRTUAL_RERANKER}", json=body, headers=JSON)
            assert (answer.status_code, answer.headers["x-sie-error-code"]) == (502, "MODEL_LOAD_FAILED")
            assert "--memory" in answer.text
            assert (await encode(client, "still here")).status_code == 200


async def test_a_single_text_is_answered_long_before_ten_thousand_that_came_first(virtual_server):
    async with client_of(virtual_server) as client:
        await encode(client, "warm")
        many = asyncio.create_task(encode(client, *[f"text number {n} of very many" * 5 for n in range(10_000)]))
        await until(lambda: metric(virtual_server, "shoal_batches_total") > 3)
        assert (await encode(client, "just one")).status_code == 200
        assert not many.done(), "the single one did not wait for the many"
        assert (await many).status_code == 200


async def test_a_full_line_refuses_at_once_with_retry_after_and_the_rest_is_answered(virtual_home):
    with serving(virtual_home, "--queue-jobs", "2") as server:
        async with client_of(server) as client:
            flood = await asyncio.gather(*(encode(client, f"{n}") for n in range(300)))
    refused = [response for response in flood if response.status_code != 200]
    assert 0 < len(refused) < 300
    for response in refused:
        assert (response.status_code, response.headers["x-sie-error-code"]) == (503, "QUEUE_FULL")
        assert response.headers["retry-after"] == "1"
        assert "--queue-jobs" in response.text


def test_more_items_than_allowed_are_refused_and_no_model_is_loaded_for_it(virtual_home):
    with serving(virtual_home, "--max-items", "10") as server:
        answer = httpx.post(f"{server.url}/v1/encode/{VIRTUAL}", json=encode_body(*["x"] * 11))
        assert answer.status_code == 413
        assert "--max-items" in answer.text
        assert state_of(server, VIRTUAL) == "available"


def test_with_a_key_set_every_route_that_computes_or_lists_asks_for_it(virtual_home):
    with (
        serving(virtual_home, SHOAL_API_KEY="first,second") as server,
        httpx.Client(base_url=server.url) as client,
    ):
        routes = [
            ("POST", f"/v1/encode/{VIRTUAL}"), ("POST", f"/v1/score/{VIRTUAL}"), ("POST", "/v1/embeddings"),
            ("POST", "/v1/rerank"), ("POST", "/v2/rerank"), ("POST", "/rerank"), ("GET", "/v1/models"),
            ("GET", f"/v1/models/{VIRTUAL}"), ("GET", "/metrics"), ("GET", "/status"),
        ]  # fmt: skip
        for method, path in routes:
            assert client.request(method, path, json={}).status_code == 401, path
            wrong = {"authorization": "Bearer third"}
            assert client.request(method, path, json={}, headers=wrong).status_code == 401, path
            right = {"authorization": "Bearer second"}
            assert client.request(method, path, json={}, headers=right).status_code != 401, path
        for path in ("/livez", "/readyz"):
            assert client.get(path).status_code == 200


def test_listening_beyond_loopback_without_a_key_is_refused(virtual_home):
    with pytest.raises(RuntimeError, match="a key is required"), serving(virtual_home, "--host", "0.0.0.0"):
        pass


async def test_a_model_added_while_serving_answers_soon_and_one_removed_is_gone_with_its_process(tmp_path):
    store = Store(tmp_path)
    store.add(VIRTUAL_RERANKER)
    with serving(tmp_path) as server:
        async with client_of(server) as client:
            assert (await encode(client, "too early")).status_code == 404
            store.add(VIRTUAL)
            assert (await encode(client, "now")).status_code == 200
            assert len(server.runtime_pids()) == 1
            store.remove(VIRTUAL)
            await until(lambda: server.runtime_pids() == [])
            gone = await encode(client, "too late")
            assert (gone.status_code, gone.headers["x-sie-error-code"]) == (404, "MODEL_NOT_FOUND")
            assert f"shoal add {VIRTUAL}" in gone.text
