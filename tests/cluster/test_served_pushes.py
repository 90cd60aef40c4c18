"""What is pushed to a running cluster is served by every node seconds later, whatever dies meanwhile."""

import concurrent.futures
import threading
import time

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import shoal
from cluster.pushes import TEXT, a_home, a_model, an_adapter, client_of, is_gone, pushable, soon, vector
from names import VIRTUAL
from shoal.catalog.store import Store
from shoal.protocol.errors import Conflict, InvalidInput, ModelNotFound, ShoalError
from shoal.testing.server import serving


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Every node has the base in memory."""
    place = tmp_path_factory.mktemp("push")
    with pushable(place, gateways=2, node_options=["--pin", VIRTUAL]) as running:
        yield running


def test_an_adapter_is_served_by_every_node_within_seconds(running, tmp_path):
    with client_of(running) as client:
        client.encode(VIRTUAL, [TEXT])
        began = time.monotonic()
        pushed = client.push(an_adapter(tmp_path / "lora"), "team/contracts", base=VIRTUAL)
        proved = time.monotonic()
        assert (pushed.version, pushed.base) == (1, VIRTUAL)
        assert vector(client, "team/contracts").shape == (384,)
        first = time.monotonic()
        served = serve_everywhere(running, "team/contracts@1")
    print(f"proved after {proved - began:.2f} s, served {first - proved:.2f} s later, by all {served:.2f} s later")


def serve_everywhere(running, name: str) -> float:
    """Ask so much that every node takes some of it; seconds until each has the adapter in memory."""
    began, ending = time.monotonic(), threading.Event()

    def ask(number: int) -> None:
        with client_of(running, number % len(running.gateways)) as client:
            while not ending.is_set():
                client.encode(name, [f"{TEXT} {number}"] * 40)

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        asking = [pool.submit(ask, number) for number in range(12)]
        try:
            soon(lambda: len(holders(running, name)) == len(running.nodes), f"{name} on every node")
        finally:
            ending.set()
        for each in asking:
            each.result()
    return time.monotonic() - began


def holders(running, name: str) -> list[str]:
    nodes = running.gateways[0].nodes()
    held = {node: status.get("models", {}).get(VIRTUAL, {}).get("adapters", {}) for node, status in nodes.items()}
    return [node for node, adapters in held.items() if adapters.get(name) == "ready"]


def test_versions_aliases_rollback_and_removal_mean_what_they_say_on_every_gateway(running, tmp_path):
    name = "team/finder"
    with client_of(running) as here, client_of(running, 1) as there:
        for number in (1, 2):
            assert here.push(a_model(tmp_path / f"m{number}", seed=number), name).version == number
        here.alias(name, "prod", 1)
        soon(lambda: (there.pushed(name)["aliases"]) == {"prod": 1}, "the alias at the other gateway")
        first, second = vector(here, f"{name}@1"), vector(here, f"{name}@2")
        assert not np.allclose(first, second)
        for client in (here, there):
            soon(lambda c=client: same(c, f"{name}@prod", first) and same(c, name, second), "what the names mean")
        here.rollback(name)
        for client in (here, there):
            soon(lambda c=client: same(c, name, first), "rolled back")
            assert same(client, f"{name}@2", second)
        with pytest.raises(ModelNotFound, match="@prod"):
            here.encode(f"{name}@7", [TEXT])
        here.remove(name)
        for client in (here, there):
            soon(lambda c=client: is_gone(c, name), "removed")
        assert [event["what"] for event in here.history(name)][-1].startswith("removed")


def same(client: shoal.Client, name: str, expected: np.ndarray) -> bool:
    return np.allclose(vector(client, name), expected, atol=1e-3)


def test_what_is_pushed_is_what_is_computed_and_a_reference_that_differs_is_refused(running, tmp_path):
    folder = a_model(tmp_path / "m", seed=5)
    store = Store(tmp_path / "home")
    store.add(folder, name="m")
    with serving(store.home) as server, shoal.Client(server.url) as own, client_of(running) as client:
        rows = [{"text": text, "vector": own.encode("m", [text])[0]} for text in (TEXT, "paris", "a")]
        pushed = client.push(folder, "team/compared", reference=rows)
        assert (pushed.rows_compared, pushed.nearest > 0.999) == (3, True)
        assert same(client, "team/compared", rows[0]["vector"])
        wrong = [*rows, {"text": "fish", "vector": rows[0]["vector"]}]
        with pytest.raises(InvalidInput, match=r"row 3 \('fish'\).* cosine of .* needed"):
            client.push(folder, "team/compared", reference=wrong, note="again")


def test_of_two_who_push_one_name_at_once_one_is_told(running, tmp_path):
    folders = [a_model(tmp_path / f"m{number}", seed=20 + number) for number in (0, 1)]

    def push(number: int):
        with client_of(running, number) as client:
            try:
                return client.push(folders[number], "team/both").version
            except Conflict as error:
                return error.message

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(push, (0, 1)))
    assert sorted(map(type, outcomes), key=str) == [int, str], outcomes
    with client_of(running) as client:
        assert [entry["version"] for entry in client.pushed("team/both")["versions"]] == [1]


def test_names_that_cannot_be_had_and_bases_that_are_not_there_are_refused(running, tmp_path):
    with client_of(running) as client:
        with pytest.raises(Conflict, match="not pushed"):
            client.push(a_model(tmp_path / "m"), VIRTUAL)
        with pytest.raises(ShoalError, match="team/nowhere"):
            client.push(an_adapter(tmp_path / "lora"), "team/lost", base="team/nowhere")
        assert is_gone(client, "team/lost")


def test_a_model_that_gives_no_numbers_and_facts_that_name_files_are_refused(running, tmp_path):
    nan, vast = a_model(tmp_path / "nan"), a_model(tmp_path / "vast")
    for folder, number in ((nan, np.nan), (vast, 3e38)):
        weights = load_file(folder / "model.safetensors")
        weights["encoder.layer.1.output.LayerNorm.weight"][:] = number
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with client_of(running) as client:
        for folder, words in ((nan, "not finite"), (vast, "team/nan was tried and does not work")):
            with pytest.raises(InvalidInput, match=words):
                client.push(folder, "team/nan")
        lies = {"dense": [{"folder": "../../secret"}]}
        with pytest.raises(InvalidInput, match="'dense' cannot be said with a push"):
            client.push(a_model(tmp_path / "m2"), "team/lies", facts=lies)
        pushed = client.push(a_model(tmp_path / "m3"), "team/prompted", facts={"prompts": {"query": "find: "}})
        assert pushed.facts["prompts"] == {"query": "find: "}
        assert is_gone(client, "team/nan")


def test_an_artifact_that_kills_runtimes_is_refused_and_the_base_goes_on(running, tmp_path):
    """The stand-in dies of certain words; here those of a reference row."""
    with client_of(running) as client:
        expected = vector(client, VIRTUAL)
        deadly = [{"text": "shoal:virtual:die", "vector": [0.5] * 384}]
        with pytest.raises(InvalidInput, match="killed the runtime twice"):
            client.push(an_adapter(tmp_path / "lora", seed=3), "team/poison", base=VIRTUAL, reference=deadly)
        assert np.array_equal(vector(client, VIRTUAL), expected)
        assert is_gone(client, "team/poison")


def test_one_machine_serves_what_was_pushed_also_after_it_was_begun_again(tmp_path):
    home = a_home(tmp_path / "home")
    with serving(home) as server, shoal.Client(server.url, timeout_s=60) as client:
        client.push(a_model(tmp_path / "m"), "team/enc")
        client.push(an_adapter(tmp_path / "lora"), "team/lora", base=VIRTUAL)
        expected = vector(client, "team/enc")
        assert {model["id"] for model in client.models()} == {VIRTUAL, "team/enc", "team/lora"}
    with serving(home, "--pin", "team/enc") as server, shoal.Client(server.url, timeout_s=60) as client:
        assert np.allclose(vector(client, "team/enc"), expected, atol=1e-6)
        assert vector(client, "team/lora").shape == (384,)
        assert client.model("team/enc")["version"] == 1
        assert client.model("team/enc")["pinned"]
