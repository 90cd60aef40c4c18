"""LoRA adapters on a real server: each request gets the numbers of its own adapter, whatever is asked beside it,
goes to make room, dies, is broken or replaced meanwhile.
"""

import asyncio
import itertools
import os
import signal
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from cluster.asking import JSON, client_of, encode, until, vector
from names import MINILM, VIRTUAL
from shoal.catalog.store import Store
from shoal.testing.adapters import write_adapter
from shoal.testing.checkpoints import tiny_encoder
from shoal.testing.server import serving

TEXTS = [f"sentence number {n} about topic {n % 5} {'and more ' * (n % 4)}" for n in range(12)]
LORAS = ["team/one", "team/two", "team/three"]
SAME = 0.9995


@pytest.fixture(scope="module")
def minilm(home, tmp_path_factory) -> Path:
    """The files of a model whose linears adapters are made for."""
    return Store(home).resolve(MINILM).folder


@pytest.fixture(scope="module", params=["virtual", pytest.param("minilm", marks=pytest.mark.models)])
def base(request) -> str:
    return VIRTUAL if request.param == "virtual" else "org/minilm"


@pytest.fixture
def store(base, minilm, tmp_path) -> Store:
    """The base, and adapters of it with random factors."""
    found = Store(tmp_path / "home")
    found.add(VIRTUAL) if base == VIRTUAL else found.add(minilm, name=base)
    for seed, name in enumerate(LORAS):
        found.add(write_adapter(tmp_path / name, minilm, seed=seed), name=name, base=base)
    return found


class Known:
    """What each model makes of each text, asked for one by one."""

    def __init__(self, client: httpx.AsyncClient, models: list[str]) -> None:
        self._client, self._models = client, models
        self.rows: dict[tuple[str, str], np.ndarray] = {}

    async def learn(self) -> "Known":
        for model, text in itertools.product(self._models, TEXTS):
            self.rows[model, text] = vector(await encode(self._client, text, model=model))
        for text in TEXTS:
            for one, other in itertools.combinations(self._models, 2):
                assert float(self.rows[one, text] @ self.rows[other, text]) < 0.99, f"{one} is {other}"
        return self

    def check(self, model: str, texts: list[str], response: httpx.Response) -> None:
        assert response.status_code == 200, response.text
        rows = [np.array(item["dense"]["values"], "f4") for item in response.json()["items"]]
        assert len(rows) == len(texts)
        for text, row in zip(texts, rows, strict=True):
            assert float(row @ self.rows[model, text]) > SAME, f"{model} answered {text!r} with another's numbers"


async def ask_mixed(
    client: httpx.AsyncClient, known: Known, models: list[str], requests: int, askers: int
) -> None:
    """Singles and lists for all models in turn, by that many askers at once; each answer is looked at."""
    numbers = iter(range(requests))

    async def ask() -> None:
        for number in numbers:
            model = models[number % len(models)]
            texts = [TEXTS[(number * 7 + n) % len(TEXTS)] for n in range(1 + number % 6)]
            known.check(model, texts, await encode(client, *texts, model=model))

    await asyncio.gather(*(ask() for _ in range(askers)))


def metric(server, name: str) -> float:
    page = httpx.get(f"{server.url}/metrics").text
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))


async def test_adapters_and_their_base_asked_at_once_give_each_request_its_own(store, base):
    models = [base, *LORAS[:2]]
    with serving(store.home, "--pin", base, "--max-wait", "600") as server:
        async with client_of(server.url) as client:
            known = await Known(client, models).learn()
            await ask_mixed(client, known, models, requests=240, askers=24)
            listed = {m["id"]: m for m in (await client.get("/v1/models")).json()["data"]}
        assert [listed[name]["base"] for name in (base, *LORAS)] == [None, base, base, base]
        assert [listed[name]["state"] for name in LORAS] == ["loaded", "loaded", "available"]
        assert metric(server, "shoal_node_adapters") == 2


async def test_more_adapters_than_there_is_room_for_take_turns(store, base):
    models = [base, *LORAS]
    with serving(store.home, "--pin", base, "--adapter-memory", "1.5MB") as server:
        async with client_of(server.url) as client:
            known = await Known(client, models).learn()
            assert metric(server, "shoal_node_adapters") == 1
            await ask_mixed(client, known, models, requests=64, askers=16)
        assert metric(server, "shoal_node_adapters") == 1


async def test_an_adapter_that_fits_in_no_room_is_refused_and_the_option_named(store, base):
    with serving(store.home, "--pin", base, "--adapter-memory", "1MB") as server:
        async with client_of(server.url) as client:
            refused = await encode(client, "a", model=LORAS[0])
            assert (refused.status_code, "--adapter-memory" in refused.text) == (502, True), refused.text
            assert (await encode(client, "a", model=base)).status_code == 200


async def test_a_broken_adapter_is_refused_with_the_reason_and_the_others_and_the_base_are_served(store, base):
    broken = store.resolve(LORAS[0]).folder / "adapter_config.json"
    broken.write_text(broken.read_text().replace('"r": 8', '"r": "many"'))
    with serving(store.home, "--pin", base) as server:
        async with client_of(server.url) as client:
            known = await Known(client, [base, LORAS[1]]).learn()
            refused = [encode(client, "a", model=LORAS[0]) for _ in range(8)]
            asked = ask_mixed(client, known, [base, LORAS[1]], requests=40, askers=8)
            *refused, _ = await asyncio.gather(*refused, asked)
            for answer in refused:
                assert (answer.status_code, LORAS[0] in answer.text) == (502, True), answer.text
                assert answer.json()["error"]["code"] == "MODEL_LOAD_FAILED"
            listed = (await client.get(f"/v1/models/{LORAS[0]}")).json()
            assert listed["state"] == "failed"
        assert metric(server, "shoal_runtime_deaths_total") == 0


async def test_runtimes_killed_while_adapters_are_in_use_lose_nothing_and_mix_nothing_up(store, base):
    models = [base, *LORAS[:2]]
    with serving(store.home, "--pin", base, "--max-wait", "600") as server:
        async with client_of(server.url) as client:
            known = await Known(client, models).learn()
            asking = asyncio.create_task(endless(client, known, models))
            for _ in range(5):
                answered = metric(server, "shoal_batches_total")
                await until(lambda answered=answered: metric(server, "shoal_batches_total") > answered + 5)
                for pid in server.runtime_pids():
                    os.kill(pid, signal.SIGKILL)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await ask_mixed(client, known, models, requests=30, askers=6)
        assert metric(server, "shoal_runtime_deaths_total") == 5


async def endless(client: httpx.AsyncClient, known: Known, models: list[str]) -> None:
    while True:
        await ask_mixed(client, known, models, requests=24, askers=12)


async def test_an_adapter_made_anew_answers_with_its_new_numbers_and_a_removed_one_is_404(
    store, base, minilm, tmp_path
):
    with serving(store.home, "--pin", base) as server:
        async with client_of(server.url) as client:
            before = vector(await encode(client, "a quiet harbour", model=LORAS[0]))
            other = vector(await encode(client, "a quiet harbour", model=LORAS[1]))
            store.add(write_adapter(tmp_path / "again", minilm, seed=1), name=LORAS[0], base=base)
            after = await soon(client, lambda row: float(row @ before) < 0.99)
            assert float(after @ other) > SAME, "they have the same factors now"
            store.remove(LORAS[0])
            until_s = time.monotonic() + 60
            while (response := await encode(client, "a", model=LORAS[0])).status_code == 200:
                assert time.monotonic() < until_s
                await asyncio.sleep(0.2)
            assert (response.status_code, response.json()["detail"]["code"]) == (404, "MODEL_NOT_FOUND")
            assert (await encode(client, "a", model=LORAS[1])).status_code == 200


async def soon(client: httpx.AsyncClient, is_new) -> np.ndarray:
    """The answer once it is new: a running node looks for changes every two seconds."""
    until_s = time.monotonic() + 60
    while True:
        row = vector(await encode(client, "a quiet harbour", model=LORAS[0]))
        if is_new(row):
            return row
        assert time.monotonic() < until_s
        await asyncio.sleep(0.2)


async def test_the_adapter_may_be_named_beside_its_base(store, base):
    with serving(store.home, "--pin", base) as server:
        async with client_of(server.url) as client:
            known = await Known(client, [base, LORAS[0]]).learn()
            for option in ("lora_id", "lora"):
                body = {"items": [TEXTS[0]], "params": {"options": {option: LORAS[0]}}}
                response = await client.post(f"/v1/encode/{base}", json=body, headers=JSON)
                known.check(LORAS[0], TEXTS[:1], response)
                body["params"]["options"][option] = "team/nothing"
                response = await client.post(f"/v1/encode/{base}", json=body, headers=JSON)
                assert (response.status_code, "team/one" in response.text) == (404, True)


@pytest.mark.models
async def test_a_base_that_an_adapter_does_not_fit_any_more_is_served_and_the_adapter_refused(minilm, tmp_path):
    store = Store(tmp_path / "home")
    tiny_encoder(tmp_path / "tiny")
    store.add(tmp_path / "tiny", name="org/tiny")
    lora = write_adapter(tmp_path / "lora", tmp_path / "tiny")
    store.add(lora, name="team/lora", base="org/tiny")
    with serving(store.home) as server:
        async with client_of(server.url) as client:
            assert (await encode(client, "fish", model="team/lora")).status_code == 200
            store.add(minilm, name="org/tiny")
            until_s = time.monotonic() + 60
            while (response := await encode(client, "fish", model="team/lora")).status_code == 200:
                assert time.monotonic() < until_s
                await asyncio.sleep(0.2)
            assert (response.status_code, response.json()["error"]["code"]) == (502, "MODEL_LOAD_FAILED")
            assert (await encode(client, "fish", model="org/tiny")).status_code == 200
