"""What a push hears before any file of it is sent."""

import pytest

from names import VIRTUAL
from shoal.catalog.objects_folder import FolderObjects
from shoal.catalog.pushed import Pushed
from shoal.catalog.registry import Registry
from shoal.catalog.stock import Stock
from shoal.catalog.store import Store
from shoal.gateway.publishing import Publisher
from shoal.protocol.errors import Conflict, NoNode, NotFound
from shoal.protocol.status import NodeStatus
from shoal.queue import Limits
from shoal.queue.inprocess import InProcessQueue


@pytest.fixture
def publisher(tmp_path):
    async def told(state): ...

    def publisher(*nodes: NodeStatus) -> Publisher:
        store, registry = Store(tmp_path), Registry(FolderObjects(tmp_path / "objects"))
        store.add(VIRTUAL)
        return Publisher(
            InProcessQueue(Limits()), registry, Stock(store, Pushed()), lambda: list(nodes), told, "ours"
        )

    return publisher


async def test_where_a_node_shares_the_store_a_name_that_is_free_can_be_pushed(publisher):
    ours = publisher(NodeStatus(node="a"), NodeStatus(node="b", objects="ours"))
    ours.check("team/mine")
    with pytest.raises(Conflict, match="not pushed"):
        ours.check(VIRTUAL)


@pytest.mark.parametrize(("objects", "words"), [("", "no node has any"), ("theirs", "are others")])
async def test_nodes_that_never_could_prove_it_are_not_waited_for(publisher, objects, words):
    with pytest.raises(NotFound, match=words) as refused:
        publisher(NodeStatus(node="a", objects=objects)).check("team/mine")
    assert not refused.value.retryable


@pytest.mark.parametrize("nodes", [(), (NodeStatus(node="a", objects="ours", draining=True),)])
async def test_where_there_is_no_node_one_may_come(publisher, nodes):
    with pytest.raises(NoNode) as refused:
        publisher(*nodes).check("team/mine")
    assert refused.value.retryable
