"""The composition: queue, node and gateway put together in one process, started and drained in order.

`_cluster` composes the same parts into processes of their own.
"""

import asyncio
import logging
import signal
import socket
from pathlib import Path

import msgspec
import uvloop

from shoal import console
from shoal.catalog.keys import Keys
from shoal.catalog.objects import Objects
from shoal.catalog.profiles import Profiles
from shoal.catalog.store import Store
from shoal.cli._objects import open_objects
from shoal.cli._observing import observing
from shoal.cli._options import LOOPBACK
from shoal.gateway.access import Access
from shoal.gateway.app import Gateway
from shoal.gateway.pages import Pages
from shoal.gateway.server import listen, make_server
from shoal.gateway.settings import GatewaySettings
from shoal.node import devices
from shoal.node.agent import Agent
from shoal.node.measured import MeasuredStore
from shoal.node.settings import Settings
from shoal.node.telling import Telling, node_name
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
    store = Store(road.home)
    access = await door(road.gateway, road.host, open_objects(road.objects, road.home))
    sock = listen(road.host, road.port)
    queue = InProcessQueue(road.queue)
    agent = make_agent(queue, store, road.node, road.max_items)
    telling = Telling(agent, node_name())
    stopping = on_signals()

    def lacking() -> str:
        return "shutting down" if stopping.is_set() else agent.lacking()

    pages = Pages(store, agent.states, queue, lacking, console.page(), lambda: [telling.status()])
    gateway = Gateway(queue, store, agent.states, pages, road.gateway, access)
    server = make_server(gateway, road.gateway)
    agent.start()
    collect_seldom()
    watching = asyncio.create_task(access.watch())
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    log.info("listening", extra=logs.fields(url=url_of(road.host, sock), models=len(store.models())))
    say_if_empty(store)
    await either(serving, stopping)
    watching.cancel()
    log.info("draining", extra=logs.fields(jobs=len(agent.scheduler.tickets)))
    server.should_exit = True
    await serving
    await agent.drain()
    await queue.close()
    log.info("stopped")


async def door(settings: GatewaySettings, host: str, objects: Objects) -> Access:
    """With the keys that are stored now. Raises InvalidInput where others could come in without one."""
    access = Access(settings.keys, Keys(objects), is_wide=host not in LOOPBACK)
    await access.load()
    access.check_listening(host)
    return access


def make_agent(
    queue: Queue, store: Store, settings: Settings, max_items: int, board: Board | None = None, name: str = ""
) -> Agent:
    measured, profiles = MeasuredStore(store.home / "measured"), Profiles(store.home, devices.kind())
    return Agent(queue, store, settings, measured, profiles, max_items, board, name)


def say_if_empty(store: Store) -> None:
    if not store.models():
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
