"""The composition of a cluster's processes: a gateway, and a node, each joined to the others by the shared queue.

What a gateway knows of models and nodes it hears on the board: it has no store and computes nothing.
"""

import asyncio
import contextlib
import logging
import os
import time
from pathlib import Path

import msgspec
import uvloop

from shoal import console
from shoal.catalog.identity import identity
from shoal.catalog.pushed import Pushed
from shoal.catalog.registry import Registry
from shoal.catalog.shared import SharedCatalog
from shoal.catalog.store import Store
from shoal.cli._beside import Beside
from shoal.cli._names import Names, Unserved
from shoal.cli._objects import open_objects
from shoal.cli._observing import observing
from shoal.cli._ready import say_ready
from shoal.cli._road import door, either, ended, make_agent, on_signals, registry_of, say_if_empty, url_of
from shoal.gateway.app import Gateway
from shoal.gateway.cleaning import clean
from shoal.gateway.pages import Pages
from shoal.gateway.publishing import Publisher
from shoal.gateway.server import inherited, listen, make_server
from shoal.gateway.settings import GatewaySettings
from shoal.node import devices
from shoal.node.fetching import Fetching
from shoal.node.page import serve_metrics
from shoal.node.proving import Prover
from shoal.node.settings import Settings
from shoal.node.stock import NodeStock
from shoal.node.telling import Telling, node_name
from shoal.node.trial import Trial
from shoal.observe import log as logs
from shoal.observe.garbage import collect_seldom
from shoal.protocol.status import ModelStatus, NodeStatus
from shoal.queue import Limits
from shoal.queue.fleet import Fleet, lacking_of, states_of
from shoal.queue.jetstream import JetStreamQueue
from shoal.queue.jetstream_auth import Login

log = logging.getLogger("shoal")
LINGER_S = 5.0
"""How long a gateway that ends waits for clients that ask nothing to leave of themselves."""


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """Where the queue server is, and which of its pools to join."""

    url: str
    pool: str = "default"
    login: Login = Login()
    log_format: str = "text"
    otlp: str = ""

    @property
    def safe_url(self) -> str:
        """Without user and password."""
        return ",".join(part.rpartition("@")[2].removeprefix("nats://") for part in self.url.split(","))


class GatewayProcess(msgspec.Struct, frozen=True, kw_only=True):
    """`fd` is a listening socket that was handed down, -1 for none. `limits` are of a pool that is new, and of one
    that is there if this gateway sets them."""

    membership: Membership
    host: str
    port: int
    fd: int = -1
    objects: str = ""
    settings: GatewaySettings
    limits: Limits
    sets_limits: bool = False


class NodeProcess(msgspec.Struct, frozen=True, kw_only=True):
    """`name` "" makes one up. `drain_s` is for what was begun when it is told to end; no page at port -1. Without
    `objects` it serves nothing that was pushed. `is_usual_memory`: nobody said how much it may take."""

    membership: Membership
    home: Path | None
    objects: str = ""
    settings: Settings
    max_items: int
    name: str = ""
    drain_s: float = 30.0
    metrics_port: int = -1
    is_usual_memory: bool = False


APART_FROM_PER_S = 16.0
"""From so many items a second on a node on, jobs of a model that pads are kept apart by size. With fewer hardly
two of a size wait together, and each size is one more thing to be asked for."""


class Cluster:
    """What is heard on the board (queue.board.Reader)."""

    def __init__(self, pushed: Pushed, queue: JetStreamQueue) -> None:
        self._queue = queue
        self.catalog = SharedCatalog(pushed, nodes=lambda: len(self.nodes()))
        self._fleet = Fleet(listening_s=queue.board.listening_s)

    def noted(self, key: str, note: bytes | None) -> None:
        self.catalog.noted(key, note)

    def told(self, status: NodeStatus) -> None:
        self._fleet.told(status, time.monotonic())
        for line, model in status.models.items():
            served = status.lines.get(line)
            if model.pads and served is not None and served.items_per_s >= APART_FROM_PER_S:
                self._queue.keep_apart(line)

    def nodes(self) -> list[NodeStatus]:
        return self._fleet.nodes(time.monotonic())

    def states(self) -> dict[str, ModelStatus]:
        return states_of(self.nodes())


def run_gateway(process: GatewayProcess) -> None:
    with observing(process.membership.log_format, process.membership.otlp, "shoal-gateway"):
        uvloop.run(gateway(process))


def run_node(process: NodeProcess) -> None:
    with observing(process.membership.log_format, process.membership.otlp, "shoal-node"):
        uvloop.run(node(process))


async def gateway(process: GatewayProcess) -> None:
    """Until SIGINT or SIGTERM: then nothing more is accepted, and what was is answered."""
    objects, pushed = open_objects(process.objects), Pushed()
    access = await door(process.settings, process.host, objects)
    registry, store_id = registry_of(objects, process.settings), await identity(objects)
    sock = inherited(process.fd) if process.fd >= 0 else listen(process.host, process.port)
    stopping = on_signals()
    name = f"gateway-{os.getpid()}"
    queue = await _join(process.membership, name, process.limits, may_change=process.sets_limits)
    cluster = Cluster(pushed, queue)
    names = Names(pushed, registry, queue.board, lambda: None)
    await queue.board.watch(cluster)
    await queue.board.watch(names)
    await names.read()

    def lacking() -> str:
        if stopping.is_set():
            return "shutting down"
        return lacking_of(cluster.nodes()) if queue.is_up else "the queue server cannot be reached"

    catalog = cluster.catalog
    pages = Pages(catalog, cluster.states, queue, lacking, console.page(), cluster.nodes)
    publisher = Publisher(queue, registry, catalog, cluster.nodes, names.tell, store_id)
    app = Gateway(queue, catalog, cluster.states, pages, process.settings, access, publisher)
    server = make_server(app, process.settings, LINGER_S)
    collect_seldom()
    beside = [asyncio.create_task(work) for work in (access.watch(), names.run(), clean(registry))]
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    log.info("listening", extra=logs.fields(url=url_of(process.host, sock), models=len(catalog.models())))
    say_ready()
    await either(serving, stopping)
    log.info("draining", extra=logs.fields(connections=len(server.server_state.connections)))
    server.should_exit = True
    await serving
    await ended(beside)
    await queue.close()
    log.info("stopped")


async def node(process: NodeProcess) -> None:
    """Until SIGINT or SIGTERM: then nothing more is taken, what was begun is finished, the rest given back."""
    store, stopping = Store(process.home), on_signals()
    name, pool = process.name or node_name(), process.membership.pool
    objects = open_objects(process.objects) if process.objects else None
    store_id = await identity(objects) if objects is not None else ""
    queue = await _join(process.membership, name)
    stock = NodeStock(store, Pushed(store.folder_of))
    registry = Registry(objects) if objects is not None else None
    files = Fetching(registry, store) if registry is not None else None
    names = Names(stock.pushed, registry, queue.board, lambda: agent.names_changed())
    agent = make_agent(
        queue, store, stock, process.settings, process.max_items, queue.board, name, files, names.look
    )
    telling = Telling(agent, name, pool, store_id)
    page = await serve_metrics(process.metrics_port, telling.status) if process.metrics_port >= 0 else None
    beside = []
    if files is not None:
        await queue.board.watch(names)
        await names.read()
        trial = Trial(agent, stock, files, name, store_id, process.settings.prove_within_s)
        prover = Prover(queue, trial, is_alone=False)
        beside = [asyncio.create_task(work) for work in (names.run(), prover.run())]
    else:
        await queue.board.watch(Unserved())
    if process.is_usual_memory:
        await queue.board.watch(Beside(name, process.settings.memory_bytes, devices.memory_bytes()))
    agent.start()
    collect_seldom()
    told = asyncio.create_task(telling.run(queue.board))
    log.info("joined", extra=logs.fields(node=name, models=len(stock.models())))
    say_if_empty(stock.models())
    while agent.lacking() and not stopping.is_set():
        await asyncio.sleep(0.05)
    say_ready()
    await stopping.wait()
    log.info("leaving", extra=logs.fields(node=name, jobs=len(agent.scheduler.tickets)))
    await ended(beside)
    await agent.leave(process.drain_s)
    told.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await told
    telling.farewell(queue.board)
    if page is not None:
        page.close()
    if files is not None:
        await files.close()
    await queue.close()
    log.info("stopped", extra=logs.fields(node=name))


async def _join(
    membership: Membership, name: str, limits: Limits | None = None, *, may_change: bool = False
) -> JetStreamQueue:
    """Raises QueueUnavailable, InvalidInput, ResourceExhausted."""
    queue = await JetStreamQueue.connect(
        membership.url, membership.pool, limits, membership.login, name=name, may_change=may_change
    )
    log.info("connected", extra=logs.fields(queue=membership.safe_url, pool=membership.pool))
    return queue
