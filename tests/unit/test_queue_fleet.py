"""What is known of a cluster's nodes from what they last told."""

from shoal.protocol.status import ModelStatus, NodeStatus
from shoal.queue.fleet import Fleet, lacking_of, states_of


def test_a_node_is_known_by_its_last_word_and_forgotten_when_it_falls_silent():
    fleet = Fleet(silent_after_s=5.0)
    fleet.told(NodeStatus(node="b", known_models=1), now=0.0)
    fleet.told(NodeStatus(node="a"), now=3.0)
    fleet.told(NodeStatus(node="b", known_models=2), now=4.0)
    assert [(n.node, n.known_models) for n in fleet.nodes(now=4.0)] == [("a", 0), ("b", 2)]
    assert [n.node for n in fleet.nodes(now=8.5)] == ["b"]
    assert fleet.nodes(now=9.5) == []


def test_nobody_is_forgotten_while_nobody_could_be_heard_nor_before_they_could_speak_again():
    listening = 100.0
    fleet = Fleet(silent_after_s=5.0, listening_s=lambda: listening)
    for node in ("stays", "goes"):
        fleet.told(NodeStatus(node=node), now=0.0)
    listening = 0.0
    assert len(fleet.nodes(now=60.0)) == 2
    listening = 3.0
    assert len(fleet.nodes(now=63.0)) == 2
    fleet.told(NodeStatus(node="stays"), now=64.0)
    listening = 6.0
    assert [n.node for n in fleet.nodes(now=66.0)] == ["stays"]


def test_a_models_state_is_that_of_the_node_where_it_is_furthest_and_its_memory_that_of_all():
    ready = ModelStatus(state="ready", memory_bytes=3, dtype="bf16", flying_items=1)
    nodes = [
        NodeStatus(node="a", models={"m": ModelStatus(state="loading", memory_bytes=2, pinned=True)}),
        NodeStatus(node="b", models={"m": ready, "n": ModelStatus(state="failed", failure="why")}),
    ]
    states = states_of(nodes)
    assert (states["m"].state, states["m"].memory_bytes, states["m"].dtype) == ("ready", 5, "bf16")
    assert states["m"].pinned
    assert states["n"].failure == "why"


def test_a_cluster_is_ready_as_soon_as_one_node_that_takes_work_is():
    loading = NodeStatus(node="a", lacking="m is loading")
    assert lacking_of([]) == "no node has joined"
    assert lacking_of([loading]) == "m is loading"
    assert lacking_of([loading, NodeStatus(node="b")]) == ""
    assert lacking_of([NodeStatus(node="b", draining=True)]) == "every node is shutting down"


def test_an_adapter_is_as_far_as_on_the_node_where_it_is_furthest():
    one = ModelStatus(state="ready", adapters={"a": "ready", "b": "failed", "c": "loading"})
    other = ModelStatus(state="ready", adapters={"a": "loading", "b": "loading", "d": "ready"})
    nodes = [NodeStatus(node=name, models={"m": status}) for name, status in (("n1", one), ("n2", other))]
    assert states_of(nodes)["m"].adapters == {"a": "ready", "b": "loading", "c": "loading", "d": "ready"}
