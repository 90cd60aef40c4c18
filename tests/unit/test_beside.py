"""What a node says that takes its usual share of a machine beside others that have theirs."""

import socket
import time

import pytest

from shoal.cli._beside import Beside
from shoal.protocol.status import NodeStatus


@pytest.fixture
def beside(caplog):
    reader = Beside("mine", budget_bytes=70, machine_bytes=100)
    reader.words = lambda: [(record.getMessage(), record.fields) for record in caplog.records]
    return reader


def status(node="node-1", budget=30, host="", began=0.0):
    host = host or socket.gethostname()
    return NodeStatus(node=node, host=host, began=began, memory_budget_bytes=budget)


def test_a_node_beside_others_that_have_their_memory_says_once_how_much_all_may_take(beside):
    beside.told(status("node-1", 20))
    assert not beside.words(), "there is room for both"
    for _ in range(3):
        beside.told(status("node-2", 20))
    [(words, fields)] = beside.words()
    assert "--memory" in words
    assert fields == {"this": "70 bytes", "others": "40 bytes", "machine": "100 bytes", "nodes": "node-1,node-2"}


@pytest.mark.parametrize(
    "other",
    [
        status("mine", 100),
        status(host="another-machine", budget=100),
        status(began=time.time() + 3600, budget=100),  # it came later, and says so itself
    ],
)
def test_itself_other_machines_and_later_nodes_are_not_its_concern(beside, other):
    beside.told(other)
    assert not beside.words()
