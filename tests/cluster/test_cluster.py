"""A cluster of real processes answers as one server does: queue server, gateway, two nodes."""

import asyncio
import sys

import httpx
import numpy as np
import pytest

from cluster.asking import JSON, client_of, encode, until, vector
from names import MINILM, VIRTUAL, VIRTUAL_RERANKER
from shoal.catalog.store import Store
from shoal.queue.server import ServerSettings
from shoal.testing.cluster import Part, cluster
from shoal.testing.server import free_port, serving


@pytest.fixture(scope="module")
def running(virtual_home):
    with cluster(virtual_home) as running:
        yield running


async def test_answers_are_those_of_one_process(running, virtual_server):
    pair = {"query": {"text": "what is it"}, "items": [{"text": "this"}, {"text": "that"}]}
    async with client_of(running.url) as there, client_of(virtual_server.url) as here:
        for texts in (["one"], ["two", "three", "and four"]):
            answers = [(await encode(client, *texts)).json()["items"] for client in (there, here)]
            assert answers[0] == answers[1]
        scores = [
            (await client.post(f"/v1/score/{VIRTUAL_RERANKER}", json=pair, headers=JSON)).json()["scores"]
            for client in (there, here)
        ]
        assert scores[0] == scores[1]
        embeddings = [
            (await client.post("/v1/embeddings", json={"model": VIRTUAL, "input": ["a", "b"]})).json()
            for client in (there, here)
        ]
        assert embeddings[0] == embeddings[1]


@pytest.mark.models
async def test_a_real_models_answers_are_those_of_one_process(home):
    texts = [f"a sentence about subject {number}" for number in range(12)]
    with cluster(home, node_options=["--pin", MINILM]) as running, serving(home, "--pin", MINILM) as server:
        async with client_of(running.url) as there, client_of(server.url) as here:
            for text in texts:
                ours, theirs = [vector(await encode(client, text, model=MINILM)) for client in (there, here)]
                assert float(ours @ theirs) > 0.9999
            many = (await encode(there, *texts, model=MINILM)).json()["items"]
            alone = vector(await encode(here, texts[-1], model=MINILM))
            assert float(np.array(many[-1]["dense"]["values"], "f4") @ alone) > 0.9995


async def test_the_gateway_lists_the_nodes_models_and_says_what_each_node_does(running):
    async with client_of(running.url) as client:
        await encode(client, "something")
        listed = {model["id"] for model in (await client.get("/v1/models")).json()["data"]}
        assert listed == {VIRTUAL, VIRTUAL_RERANKER}
        assert (await client.get("/health")).json()["cluster"]["worker_count"] == 2
        await until(lambda: any(VIRTUAL in n.get("models", {}) for n in running.gateways[0].nodes().values()))
        nodes = running.gateways[0].nodes()
        assert set(nodes) == {"node-1", "node-2"}
        assert all(node["known_models"] == 2 and node["memory_budget_bytes"] for node in nodes.values())
        await until(lambda: state_of(running, VIRTUAL) == "loaded")


def state_of(running, model: str) -> str:
    return httpx.get(f"{running.url}/v1/models/{model}").json()["state"]


async def test_an_unknown_model_is_refused_with_the_near_name_and_a_route_without_a_name_has_a_default(running):
    async with client_of(running.url) as client:
        unknown = await encode(client, "text", model="shoal/virtual-encode")
        assert (unknown.status_code, unknown.headers["x-sie-error-code"]) == (404, "MODEL_NOT_FOUND")
        assert VIRTUAL in unknown.text
        assert len((await client.post("/embed", json={"inputs": "no model is named"})).json()) == 1


async def test_a_gateway_without_nodes_is_not_ready_and_says_so(virtual_home):
    with cluster(virtual_home, nodes=0, wait=False) as running:
        gateway = running.gateways[0]
        await until(lambda: gateway.page("/livez")[0] == 200)
        assert gateway.page("/readyz") == (503, b"not ready: no node has joined")
        async with client_of(gateway.url) as client:
            answer = await encode(client, "too early")
        assert (answer.status_code, answer.headers["x-sie-error-code"]) == (503, "PROVISIONING")
        assert "no node has joined this pool" in answer.text
        assert int(answer.headers["retry-after"]) >= 1


async def test_a_request_for_a_model_whose_only_node_went_waits_and_is_then_told_that_nobody_is_there(
    virtual_home,
):
    with cluster(virtual_home, nodes=1) as running:
        async with client_of(running.url) as client:
            assert (await encode(client, "hello")).status_code == 200
            running.nodes[0].kill()
            await until(lambda: running.gateways[0].page("/readyz") == (503, b"not ready: no node has joined"))
            answer = await encode(client, "nobody", **{"x-shoal-timeout-ms": "200"})
            assert (answer.status_code, answer.headers["x-sie-error-code"]) == (503, "PROVISIONING")
            assert f"no node of this pool is there to compute {VIRTUAL}" in answer.text
            waiting = asyncio.create_task(encode(client, "somebody"))
            running.nodes[0].start()
            assert (await waiting).status_code == 200


async def test_a_model_added_to_one_node_is_offered_and_one_removed_is_gone(tmp_path):
    store = Store(tmp_path)
    store.add(VIRTUAL_RERANKER)
    with cluster(tmp_path, nodes=1) as running:
        store.add(VIRTUAL)
        async with client_of(running.url) as client:
            await until(lambda: running.gateways[0].page(f"/v1/models/{VIRTUAL}")[0] == 200)
            assert (await encode(client, "now")).status_code == 200
            store.remove(VIRTUAL)
            await until(lambda: running.gateways[0].page(f"/v1/models/{VIRTUAL}")[0] == 404)
            assert f"shoal add {VIRTUAL}" in (await encode(client, "too late")).text


async def test_what_waits_at_a_node_whose_model_is_removed_is_computed_by_another_that_has_it(tmp_path):
    one, other = Store(tmp_path / "one"), Store(tmp_path / "other")
    for store in (one, other):
        store.add(VIRTUAL)
    with cluster(one.home, nodes=1) as running:
        words = ["node", "--name", "node-2", "--nats", running.nats.url, "--home", str(other.home)]
        second = Part("node-2", words, tmp_path)
        async with client_of(running.url) as client:
            assert (await encode(client, "now node-1 holds it")).status_code == 200
            second.start()
            try:
                await until(lambda: set(running.gateways[0].nodes()) == {"node-1", "node-2"})
                asked = [asyncio.create_task(encode(client, f"shoal:virtual:slow=6 {n}")) for n in range(2)]
                await until(lambda: in_hand(running) >= 2)
                asked += [asyncio.create_task(encode(client, f"text {n}")) for n in range(400)]
                await until(lambda: in_hand(running) + waiting(running) >= 300)
                one.remove(VIRTUAL)
                assert [answer.status_code for answer in await asyncio.gather(*asked)] == [200] * len(asked)
                await until(lambda: VIRTUAL not in running.gateways[0].nodes()["node-1"].get("models", ()))
                assert (await encode(client, "node-2 has it")).status_code == 200
                assert running.gateways[0].page(f"/v1/models/{VIRTUAL}")[0] == 200
            finally:
                second.kill()


async def test_a_request_whose_model_is_still_loading_at_its_deadline_is_told_so(fresh_virtual_home):
    with cluster(fresh_virtual_home, nodes=1) as running:
        async with client_of(running.url) as client:
            codes = set()
            async with asyncio.timeout(60):
                while (
                    state_of(running, VIRTUAL) != "loaded"
                ):  # a node that just came first hears who else is there
                    early = await encode(client, "hello", **{"x-shoal-timeout-ms": "30"})
                    if early.status_code != 200:
                        codes.add((early.status_code, early.headers["x-sie-error-code"]))
                        assert int(early.headers["retry-after"]) >= 1
                    await asyncio.sleep(0.1)
            assert codes == {(503, "MODEL_LOADING")}


async def test_a_client_that_went_away_costs_no_device_time(virtual_home):
    with cluster(virtual_home, nodes=1) as running:
        async with client_of(running.url) as client:
            await encode(client, "warm")
            blocking = [asyncio.create_task(encode(client, f"shoal:virtual:slow=2 {n}")) for n in range(2)]
            await until(lambda: in_hand(running) >= 2)
            leaving = [asyncio.create_task(encode(client, f"shoal:virtual:slow=5 {n}")) for n in range(8)]
            await until(lambda: in_hand(running) >= 4 or waiting(running) > 0)
            for task in leaving:
                task.cancel()
            await asyncio.gather(*leaving, return_exceptions=True)
            assert [response.status_code for response in await asyncio.gather(*blocking)] == [200, 200]
            async with asyncio.timeout(8):  # eight times five seconds of work would be in the way
                assert (await encode(client, "after")).status_code == 200
            await until(lambda: in_hand(running) == 0)


def in_hand(running) -> int:
    return sum(map(in_hand_of, running.gateways[0].nodes().values()))


def in_hand_of(node: dict) -> int:
    return sum(line.get("jobs_in_hand", 0) for line in node.get("lines", {}).values())


def waiting(running) -> int:
    models = httpx.get(f"{running.url}/status").json()["models"]
    return sum(model["queued_jobs"] for model in models)


async def test_a_node_told_to_end_finishes_what_it_began_and_another_takes_the_rest(virtual_home):
    with cluster(virtual_home, node_options=["--pin", VIRTUAL]) as running:
        async with client_of(running.url) as client:
            await encode(client, "warm")
            asked = [asyncio.create_task(encode(client, f"shoal:virtual:slow=0.2 {n}")) for n in range(40)]
            await until(lambda: in_hand(running) >= 4)
            pids = running.nodes[0].runtime_pids()
            assert await asyncio.to_thread(running.nodes[0].end) == 0
            assert {response.status_code for response in await asyncio.gather(*asked)} == {200}
            assert pids
            await until(lambda: "node-1" not in running.gateways[0].nodes())
            assert running.gateways[0].is_ready()


@pytest.mark.slow
async def test_what_a_node_cannot_finish_in_time_is_done_by_another(virtual_home):
    with cluster(virtual_home, node_options=["--drain-within", "0.2", "--pin", VIRTUAL]) as running:
        async with client_of(running.url) as client:
            asked = [asyncio.create_task(encode(client, f"shoal:virtual:slow=1.5 {n}")) for n in range(8)]
            await until(lambda: all(in_hand_of(node) > 0 for node in running.gateways[0].nodes().values()))
            assert await asyncio.to_thread(running.nodes[0].end) == 0
            assert {response.status_code for response in await asyncio.gather(*asked)} == {200}


async def test_a_gateway_told_to_end_answers_what_it_accepted_and_says_that_it_was_the_last(virtual_home):
    with cluster(virtual_home, nodes=1) as running:
        async with client_of(running.url) as client, client_of(running.url) as seldom:
            for each in (client, seldom):
                assert "connection" not in (await encode(each, "warm")).headers
            asked = [asyncio.create_task(encode(client, f"shoal:virtual:slow=2 {n}")) for n in range(4)]
            await until(lambda: in_hand(running) >= 2)  # as told once a second: none is answered yet
            running.gateways[0].ask_to_end()
            await until(lambda: "draining" in running.gateways[0].log.read_text())
            await asyncio.sleep(0.3)  # longer than the server takes to see that it is to end
            answers = [await encode(seldom, "on a connection from before"), *await asyncio.gather(*asked)]
        assert {response.status_code for response in answers} == {200}
        assert {response.headers["connection"] for response in answers} == {"close"}
        assert await asyncio.to_thread(running.gateways[0].process.wait, 30) == 0


@pytest.mark.slow
async def test_user_and_password_let_gateways_and_nodes_join_and_no_other(virtual_home, tmp_path, monkeypatch):
    guarded = ServerSettings(folder=tmp_path, more='authorization { user: "shoal", password: "secret" }')
    known = ["--nats-user", "shoal"]
    monkeypatch.setenv("SHOAL_NATS_PASSWORD", "secret")
    with cluster(virtual_home, nodes=1, server=guarded, node_options=known, gateway_options=known) as running:
        async with client_of(running.url) as client:
            assert (await encode(client, "let in")).status_code == 200
        stranger = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "shoal", "node", "--nats", running.nats.url, stderr=asyncio.subprocess.PIPE
        )
        _, said = await asyncio.wait_for(stranger.communicate(), 60)
        assert stranger.returncode == 78
        assert b"refuses us" in said


@pytest.mark.slow
async def test_without_a_queue_server_a_node_ends_and_names_the_setting(virtual_home):
    where = f"nats://127.0.0.1:{free_port()}"
    words = ["node", "--nats", where, "--home", str(virtual_home)]
    node = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shoal", *words, stderr=asyncio.subprocess.PIPE
    )
    _, said = await asyncio.wait_for(node.communicate(), 60)
    assert node.returncode == 1
    assert b"--nats" in said
    assert where.removeprefix("nats://").encode() in said
