"""The composition: queue, node and gateway put together in one process, started and drained in order.

`_cluster` composes the same parts into processes of their own.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec
import uvloop

from shoal import console
from shoal.catalog import Model, manifests
from shoal.catalog.identity import identity
from shoal.catalog.keys import Keys
from shoal.catalog.objects import Objects
from shoal.catalog.profiles import Profiles
from shoal.catalog.pushed import Pushed
from shoal.catalog.registry import Registry
from shoal.catalog.stock import Stock
from shoal.catalog.store import Store
from shoal.cli._names import Names
from shoal.cli._objects import open_objects
from shoal.cli._observing import observing
from shoal.cli._options import LOOPBACK
from shoal.gateway.access import Access
from shoal.gateway.app import Gateway
from shoal.gateway.cleaning import clean
from shoal.gateway.pages import Pages
from shoal.gateway.publishing import Publisher
from shoal.gateway.server import listen, make_server
from shoal.gateway.settings import GatewaySettings
from shoal.node import devices
from shoal.node.agent import Agent
from shoal.node.fetching import Fetching, Files
from shoal.node.hands import Look
from shoal.node.measured import MeasuredStore
from shoal.node.proving import Prover
from shoal.node.roster import Models
from shoal.node.settings import Settings
from shoal.node.stock import NodeStock
from shoal.node.telling import Telling, node_name
from shoal.node.trial import Trial
from shoal.observe import log as logs
from shoal.observe.garbage import collect_seldom
from shoal.queue import Limits, Queue
from shoal.queue.board import Board
from shoal.queue.inprocess import InProcessQueue

log = logging.getLogger("shoal")


class Road(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a server on one machine is started with."""

    host: str
    port: int
    home: Path | None
    objects: str = ""
    max_items: int
    log_format: str
    otlp: str = ""
    gateway: GatewaySettings
    node: Settings
    queue: Limits


def run(road: Road) -> None:
    """Serve until SIGINT or SIGTERM, then finish what was accepted. A second signal ends it at once."""
    with observing(road.log_format, road.otlp, "shoal"):
        uvloop.run(serve(road))


async def serve(road: Road) -> None:
    store, objects = Store(road.home), open_objects(road.objects, road.home)
    access = await door(road.gateway, road.host, objects)
    registry, store_id = registry_of(objects, road.gateway), await identity(objects)
    sock = listen(road.host, road.port)
    queue = InProcessQueue(road.queue)
    pushed = Pushed(store.folder_of)
    stock, of_node, files = Stock(store, pushed), NodeStock(store, pushed), Fetching(registry, store)
    names = Names(pushed, registry, None, lambda: agent.names_changed())
    agent = make_agent(queue, store, of_node, road.node, road.max_items, files=files, look=names.look)
    await names.read()
    name = node_name()
    telling = Telling(agent, name, objects=store_id)
    trial = Trial(agent, of_node, files, name, store_id, road.node.prove_within_s)
    prover = Prover(queue, trial, is_alone=True)
    stopping = on_signals()

    def lacking() -> str:
        return "shutting down" if stopping.is_set() else agent.lacking()

    pages = Pages(stock, agent.states, queue, lacking, console.page(), lambda: [telling.status()])
    publisher = Publisher(queue, registry, stock, lambda: [telling.status()], names.tell, store_id)
    gateway = Gateway(queue, stock, agent.states, pages, road.gateway, access, publisher)
    server = make_server(gateway, road.gateway)
    agent.start()
    collect_seldom()
    beside = [asyncio.create_task(work) for work in (access.watch(), names.run(), prover.run(), clean(registry))]
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    log.info("listening", extra=logs.fields(url=url_of(road.host, sock), models=len(stock.models())))
    say_if_empty(stock.models())
    await either(serving, stopping)
    log.info("draining", extra=logs.fields(jobs=len(agent.scheduler.tickets)))
    server.should_exit = True
    await serving
    await ended(beside)
    await agent.drain()
    await files.close()
    await queue.close()
    log.info("stopped")


async def ended(tasks: "list[asyncio.Task[None]]") -> None:
    """Cancel them, and wait until each has seen to that."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def registry_of(objects: Objects, settings: GatewaySettings) -> Registry:
    """With what one pushed model may have."""
    limits = manifests.Limits(
        settings.max_artifact_bytes, settings.max_artifact_files, settings.max_unfinished_bytes,
        settings.max_unfinished_bytes_per_key,
    )  # fmt: skip
    return Registry(objects, limits)


async def door(settings: GatewaySettings, host: str, objects: Objects) -> Access:
    """With the keys that are stored now. Raises InvalidInput where others could come in without one."""
    access = Access(settings.keys, Keys(objects), is_wide=host not in LOOPBACK)
    await access.load()
    access.check_listening(host)
    return access


def make_agent(
    queue: Queue,
    store: Store,
    models: Models,
    settings: Settings,
    max_items: int,
    board: Board | None = None,
    name: str = "",
    files: Files | None = None,
    look: Look | None = None,
) -> Agent:
    measured, profiles = MeasuredStore(store.home / "measured"), Profiles(store.home, devices.kind())
    return Agent(queue, models, settings, measured, profiles, max_items, board, name, files, look)


def say_if_empty(models: Mapping[str, Model]) -> None:
    if not models:
        log.warning("there is no model here yet; `shoal models --all` lists what `shoal add` can bring")


def url_of(host: str, sock: socket.socket) -> str:
    return f"http://{host}:{sock.getsockname()[1]}"


async def either(serving: "asyncio.Task[None]", stopping: asyncio.Event) -> None:
    """Until one has ended."""
    stopped = asyncio.create_task(stopping.wait())
    await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()


def on_signals() -> asyncio.Event:
    """Set by the first SIGINT or SIGTERM; a second ends the process at once."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask(number: int) -> None:
        if stopping.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask, number)
    return stopping
