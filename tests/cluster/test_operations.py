"""What an operator sees of real processes at work: gauges that move, a cluster's nodes, one trace through it."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import sie_sdk
from prometheus_client.parser import text_string_to_metric_families

from names import VIRTUAL
from shoal.testing.cluster import cluster
from shoal.testing.collector import collecting
from shoal.testing.server import free_port, serving

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PATIENCE_S = 60.0
CLIENTS = 120


def ask(url: str, **headers: str) -> httpx.Response:
    body = {"model": VIRTUAL, "input": "a lantern in the meadow"}
    return httpx.post(f"{url}/v1/embeddings", json=body, headers=headers, timeout=60)


def metrics(url: str) -> dict[str, float]:
    """Each metric summed over its labels; of a histogram, its parts."""
    page = httpx.get(f"{url}/metrics", timeout=60).raise_for_status().text
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def seen(look, *wanted):
    """The best that was seen of each number, once every one was above 0."""
    best = dict.fromkeys(wanted, 0.0)
    until = time.monotonic() + PATIENCE_S
    while not all(best.values()) and time.monotonic() < until:
        now = look()
        best = {name: max(value, now.get(name, 0.0)) for name, value in best.items()}
    return best


def test_gauges_move_under_load_and_rest_after_it(virtual_home):
    moving = (
        "shoal_queue_jobs", "shoal_queue_oldest_seconds", "shoal_requests_in_flight", "shoal_node_busy_share",
        "shoal_node_batch_fill", "shoal_node_useful_tokens_per_second", "shoal_node_jobs_in_hand",
        "shoal_node_queue_wait_seconds", "shoal_refusals_total", "shoal_node_memory_bytes",
    )  # fmt: skip
    with (
        serving(virtual_home, "--queue-jobs", "8") as server,
        httpx.Client(base_url=server.url, timeout=60, limits=httpx.Limits(max_connections=None)) as http,
        ThreadPoolExecutor(CLIENTS) as clients,
    ):
        body = {"model": VIRTUAL, "input": ["a lantern in the meadow"] * 256}
        enough = threading.Event()

        def load() -> list[httpx.Response]:
            answers = []
            while not enough.is_set():
                answers.append(http.post("/v1/embeddings", json=body))
            return answers

        loaded = [clients.submit(load) for _ in range(CLIENTS)]
        best = seen(lambda: metrics(server.url), *moving)
        enough.set()
        assert all(best.values()), best
        assert best["shoal_node_busy_share"] <= 1
        answers = [answer.status_code for each in loaded for answer in each.result()]
        assert set(answers) == {200, 503}
        after = metrics(server.url)
        assert after["shoal_tokens_computed_total"] >= after["shoal_tokens_useful_total"] > 0
        assert after["shoal_batch_fill_count"] == after["shoal_batches_total"]
        assert after["shoal_queue_wait_seconds_count"] == answers.count(200)
        assert after["shoal_refusals_total"] == answers.count(503)
        assert after.get("shoal_queue_jobs", 0) == after["shoal_requests_in_flight"] == 0
        assert after["shoal_node_jobs_in_hand"] == 0
        traffic = httpx.get(f"{server.url}/status", timeout=60).json()["traffic"]
        assert (traffic["answered"], traffic["refused"]) == (answers.count(200), answers.count(503))
        assert traffic["refusals"] == {"QUEUE_FULL": answers.count(503)}


@pytest.mark.clients
def test_a_cluster_shows_its_nodes_to_every_reader_and_is_one_trace(virtual_home):
    port = free_port()
    with collecting() as collector:
        options = ("--otlp", collector.url)
        with cluster(virtual_home, nodes=1, node_options=(*options, "--metrics-port", str(port)),
                     gateway_options=options) as running:  # fmt: skip
            answer = ask(running.url, traceparent=f"00-{TRACE}-{SPAN}-01").raise_for_status()
            spans = {span.name: span for span in collector.wait_for(7, TRACE)}
            root, node = spans["POST /v1/embeddings"], spans["node"]
            assert {span.service for span in spans.values()} == {"shoal-gateway", "shoal-node"}
            assert (root.parent, node.parent, spans["micro-batch"].parent) == (SPAN, root.id, node.id)
            assert (root.service, spans["micro-batch"].service) == ("shoal-gateway", "shoal-node")
            assert node.facts["shoal.request"] == answer.headers["x-request-id"]

            page = f"http://127.0.0.1:{port}"
            assert metrics(page)["shoal_items_total"] == 1
            assert metrics(page)["shoal_nodes"] == 1
            assert seen(lambda: metrics(running.url), "shoal_node_memory_bytes")["shoal_node_memory_bytes"] > 0
            assert "shoal_items_total" not in metrics(running.url)  # a gateway computes nothing
            assert httpx.get(f"{page}/elsewhere").status_code == 404

            with sie_sdk.SIEClient(running.url, api_key="") as sdk:
                watched = sdk.watch()
                assert [worker["name"] for worker in next(watched)["workers"]] == ["node-1"]
                watched.close()
            words = [sys.executable, "-m", "shoal", "top", running.url, "--once"]
            shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            assert "node-1" in shown
            assert VIRTUAL in shown
