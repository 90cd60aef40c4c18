"""Nodes and queue servers that die, disks that lie or fill up, while models are pushed and served."""

import concurrent.futures
import threading
import time

import numpy as np
import pytest

import shoal
from cluster.pushes import (
    FETCHED,
    PROVING,
    TEXT,
    a_home,
    a_model,
    an_adapter,
    client_of,
    is_gone,
    pushable,
    said,
    soon,
    vector,
    who_said,
)
from names import VIRTUAL
from shoal.protocol.errors import Conflict, ModelLoadFailed, ModelNotFound, ShoalError

pytestmark = pytest.mark.slow


def test_a_node_that_dies_while_it_proves_leaves_the_push_to_another(tmp_path):
    with pushable(tmp_path, nodes=2) as running, client_of(running) as client:
        killed = []

        def kill() -> None:
            node = who_said(running, PROVING)
            node.kill()
            killed.append(node)

        killer = threading.Thread(target=kill)
        killer.start()
        pushed = client.push(a_model(tmp_path / "m"), "team/enc")
        killer.join()
        assert pushed.node not in ("", killed[0].name)
        assert vector(client, "team/enc").shape == (32,)


def test_a_base_that_is_removed_while_an_adapter_of_it_is_proved_leaves_no_adapter_without_one(tmp_path):
    with pushable(tmp_path, nodes=1, gateways=2) as running, client_of(running) as client:
        client.push(a_model(tmp_path / "m", seed=1), "team/enc")
        proved = said(running.nodes[0], PROVING)

        def remove() -> None:
            soon(lambda: said(running.nodes[0], PROVING) > proved, "the adapter is being proved")
            with client_of(running, 1) as other:
                other.remove("team/enc")

        remover = threading.Thread(target=remove)
        remover.start()
        with pytest.raises((Conflict, ModelNotFound), match=r"removed meanwhile|no node"):
            client.push(an_adapter(tmp_path / "a"), "team/adapter", base="team/enc")
        remover.join()
        assert is_gone(client, "team/adapter")
        with pytest.raises(ModelNotFound):
            client.pushed("team/adapter")


def test_a_node_that_dies_while_it_fetches_or_loads_leaves_the_requests_to_another(tmp_path):
    with pushable(tmp_path, nodes=3) as running, client_of(running) as client:
        pushed = client.push(a_model(tmp_path / "m"), "team/enc")
        expected = vector(client, "team/enc")
        prover = next(node for node in running.nodes if node.name == pushed.node)
        prover.kill()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(vector, client, "team/enc")
            who_said(running, FETCHED).kill()
            assert np.allclose(answer.result(), expected, atol=1e-6)


def test_names_outlive_the_queue_server_and_later_nodes_and_gateways_know_them(tmp_path):
    with pushable(tmp_path, nodes=1) as running, client_of(running) as client:
        client.push(a_model(tmp_path / "m"), "team/enc")
        client.push(an_adapter(tmp_path / "lora"), "team/lora", base=VIRTUAL)
        client.alias("team/enc", "prod")
        expected = vector(client, "team/enc@prod")
        running.nats.kill()
        running.nats.start()
        running.wait_ready()
        assert np.allclose(vector(client, "team/enc@prod"), expected, atol=1e-6)
        late = running.add_gateway("--objects", str(tmp_path / "other-objects"))
        node = running.add_node(a_home(tmp_path / "late"), "--objects", str(tmp_path / "objects"))
        running.wait_ready()
        running.nodes[0].kill()
        soon(lambda: node.name in late.nodes(), "the new node is heard of")
        with shoal.Client(late.url, timeout_s=60) as other:
            soon(lambda: not is_gone(other, "team/enc@prod"), "a gateway that only hears of names")
            assert np.allclose(vector(other, "team/enc@prod"), expected, atol=1e-6)
            assert vector(other, "team/lora").shape == (384,)


def test_a_damaged_blob_is_never_computed_with_and_a_second_push_repairs_it(tmp_path):
    with pushable(tmp_path, nodes=2) as running, client_of(running) as client:
        folder = a_model(tmp_path / "m")
        pushed = client.push(folder, "team/enc")
        next(node for node in running.nodes if node.name == pushed.node).kill()
        weights = max((tmp_path / "objects" / "blobs").rglob("*"), key=lambda path: path.stat().st_size)
        damaged = bytearray(weights.read_bytes())
        damaged[len(damaged) // 2] ^= 0xFF
        weights.chmod(0o644)
        weights.write_bytes(damaged)
        with pytest.raises(ModelLoadFailed, match="damaged"):
            client.encode("team/enc", [TEXT])
        client.push(folder, "team/again")
        assert vector(client, "team/again").shape == (32,)


def test_a_node_keeps_its_disk_budget_and_fetches_again_what_it_dropped(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOAL_DISK", "300KB")  # of which one model takes a third
    with pushable(tmp_path, nodes=1) as running, client_of(running) as client:
        expected = []
        for number in range(5):
            client.push(a_model(tmp_path / f"m{number}", seed=number), f"team/m{number}")
            expected.append(vector(client, f"team/m{number}"))
            assert held_bytes(tmp_path / "home-1") <= 300_000
        before = said(running.nodes[0], FETCHED)
        running.nodes[0].kill()
        running.nodes[0].start()
        running.wait_ready()
        for number in range(5):
            assert np.allclose(vector(client, f"team/m{number}"), expected[number], atol=1e-6)
            assert held_bytes(tmp_path / "home-1") <= 300_000
        assert said(running.nodes[0], FETCHED) > before


def held_bytes(home) -> int:
    return sum(path.stat().st_size for path in (home / "fetched").rglob("*") if path.is_file())


def test_a_node_without_room_on_its_disk_leaves_pushes_to_others(tmp_path):
    with pushable(tmp_path, nodes=2) as running, client_of(running) as client:
        full = running.nodes[1]
        full.kill()
        full.before = ["env", "SHOAL_DISK=1KB"]
        full.start()
        running.wait_ready()
        for number in range(20):  # until it was its turn
            client.push(an_adapter(tmp_path / f"a{number}", seed=number), f"team/a{number}", base=VIRTUAL)
            if said(full, "could not be fetched"):
                break
        assert said(full, "could not be fetched")
        assert not said(full, "a push was refused")


def test_a_node_without_the_object_store_leaves_pushed_models_to_others_and_says_so_once(tmp_path):
    with pushable(tmp_path, nodes=1) as running, client_of(running) as client:
        bare = running.add_node(a_home(tmp_path / "bare"))
        running.wait_ready()
        client.push(a_model(tmp_path / "m"), "team/enc")
        client.push(a_model(tmp_path / "m2", seed=2), "team/enc")
        assert vector(client, "team/enc").shape == (32,)
        soon(lambda: said(bare, "not served here"), "it is said")
        running.nodes[0].kill()
        soon(lambda: running.nodes[0].name not in running.gateways[0].nodes(), "the other is gone")
        with pytest.raises(ShoalError, match="no node"):
            client.push(a_model(tmp_path / "m3", seed=3), "team/enc")
        assert said(bare, "not served here") == 1


def test_a_node_without_the_object_store_leaves_adapters_of_its_base_to_others(tmp_path):
    with pushable(tmp_path, nodes=1, node_options=["--pin", VIRTUAL]) as running, client_of(running) as client:
        bare = running.add_node(a_home(tmp_path / "bare"), "--pin", VIRTUAL)
        running.wait_ready()
        client.push(an_adapter(tmp_path / "lora"), "team/lora", base=VIRTUAL)
        expected = vector(client, "team/lora")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = pool.map(lambda _: vector(client, "team/lora"), range(100))
            assert all(np.allclose(answer, expected, atol=1e-6) for answer in answers)
        began = time.monotonic()
        assert vector(client, VIRTUAL).shape == (384,)
        print(f"the base answers in {time.monotonic() - began:.3f} s")
        running.nodes[0].kill()
        soon(lambda: list(running.gateways[0].nodes()) == [bare.name], "the other is gone")
        with pytest.raises(ShoalError, match="team/lora"):
            client.encode("team/lora", [TEXT])


def test_what_is_under_way_ends_with_what_it_began_with(tmp_path):
    """The stand-in is slow on request."""
    slow = [f"shoal:virtual:slow=3 {TEXT}"]
    with pushable(tmp_path, nodes=1) as running, client_of(running) as client:
        client.push(an_adapter(tmp_path / "lora"), "team/lora", base=VIRTUAL)
        vector(client, "team/lora")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(client.encode, "team/lora", slow)
            soon(lambda: in_flight(running), "it is computed")
            client.remove("team/lora")
            assert is_gone(client, "team/lora")
            assert answer.result().shape == (1, 384)


def in_flight(running) -> bool:
    nodes = running.gateways[0].nodes()
    return any(node.get("models", {}).get(VIRTUAL, {}).get("flying_items") for node in nodes.values())
