"""Many models on few devices: they take turns, spread over the nodes, and outlive them."""

import asyncio
import json
import urllib.request
from collections import Counter

import pytest

from cluster.asking import client_of, encode, until, vector
from shoal.catalog import Card, Virtual
from shoal.catalog.store import Store
from shoal.testing.cluster import cluster

MODELS = [f"test/model-{number}" for number in range(6)]
TEXTS = [f"sentence number {number}" for number in range(8)]


@pytest.fixture
def home(tmp_path):
    """Six models whose batches take 20 ms, on devices that compute one at a time."""
    store = Store(tmp_path / "home")
    facts = {"tasks": ["encode"], "family": "virtual", "max_tokens": 512, "dims": 32, "normalize": True}
    for name in MODELS:
        store.add(Card(name=name, source=Virtual(seconds=0.02, serial=True), facts=facts))
    return store.home


async def all_asked(client, times):
    """Every text of every model, so many times at once; how many of each status, and whether answers are alike."""
    asked = [(model, text) for _ in range(times) for model in MODELS for text in TEXTS]
    answers = await asyncio.gather(*(encode(client, text, model=model) for model, text in asked))
    found: dict[tuple[str, str], set[bytes]] = {}
    for key, answer in zip(asked, answers, strict=True):
        if answer.status_code == 200:
            found.setdefault(key, set()).add(vector(answer).tobytes())
    assert all(len(alike) == 1 for alike in found.values()), "another's answer"
    return Counter(answer.status_code for answer in answers)


def holding(running):
    """How many models each node has in memory."""
    with urllib.request.urlopen(f"{running.url}/status", timeout=30) as answer:
        nodes = json.loads(answer.read())["nodes"]
    return [sum(model["state"] == "ready" for model in node["models"].values()) for node in nodes]


async def test_models_that_share_devices_are_all_answered_and_so_they_are_when_a_node_is_killed(home):
    pinned = [word for name in MODELS for word in ("--pin", name)]
    with cluster(home, node_options=pinned) as running:
        async with client_of(running.url) as client:
            assert set(await all_asked(client, 3)) == {200}
            under_way = asyncio.create_task(all_asked(client, 6))
            await asyncio.sleep(0.1)
            running.nodes[0].kill()
            assert set(await under_way) == {200}
            assert set(await all_asked(client, 1)) == {200}


async def test_one_request_at_a_time_finds_a_node_that_waits_for_all_of_them(home):
    pinned = [word for name in MODELS for word in ("--pin", name)]
    with cluster(home, node_options=pinned) as running:
        async with client_of(running.url) as client:
            for turn in range(5):
                for model in MODELS:
                    assert (await encode(client, f"text {turn}", model=model)).status_code == 200


async def test_cold_models_spread_over_the_nodes(home):
    with cluster(home) as running:
        async with client_of(running.url) as client:
            assert set(await all_asked(client, 2)) == {200}
            await until(lambda: sum(holding(running)) >= len(MODELS))
            assert min(holding(running)) >= 1
