"""A cluster on one host: what it consists of, by a file or options, and its life from first process to last.

The queue server comes first and goes last. Gateways share one port: this process holds a socket for each of them,
so that a client who comes while a gateway is begun again waits instead of being refused.
"""

import asyncio
import logging
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from shoal.cli._children import Child, Spec, replace
from shoal.cli._objects import objects_url
from shoal.cli._road import either, on_signals
from shoal.cli._turns import SharedTurns
from shoal.node import devices
from shoal.observe import log as logs
from shoal.protocol.errors import InvalidInput, QueueUnavailable
from shoal.queue.server import READY_WITHIN_S, QueueServer, ServerSettings

log = logging.getLogger("shoal.up")
Options = dict[str, Any]
MEMORY_SHARE = 0.7
"""Of the machine's, for the models of all nodes together where nobody says how much each may have."""


class QueuePart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`url` names a queue server that runs elsewhere; "" starts one here."""

    url: str = ""
    port: int = 4222
    memory: str = "2GB"
    binary: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a cluster.toml may say. `gateway` and `node` hold options of these verbs by their names; a table
    `nodes` has, for each node, options of its own on top. `objects` is the object store of all, "" a folder beside
    the models.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    gateways: int = 1
    nodes: int | list[Options] = 3
    pool: str = "default"
    log_format: str = msgspec.field(name="log-format", default="text")
    objects: str = ""
    queue: QueuePart = QueuePart()
    gateway: Options = {}
    node: Options = {}


def read_plan(path: Path) -> Plan:
    """Raises InvalidInput, saying what in the file cannot be understood."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Plan)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: {error}") from None


def words(options: Options) -> list[str]:
    """Options as on the command line: `{"pin": ["a", "b"]}` is `--pin a --pin b`, `true` is the option alone.

    Raises InvalidInput.
    """
    found: list[str] = []
    for name, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                raise InvalidInput(f"option {name} cannot be {each!r}")
            flag = f"--{name.replace('_', '-')}"
            if not isinstance(each, bool):
                found += [flag, str(each)]
            elif each:
                found.append(flag)
    return found


def run(plan: Plan) -> None:
    logs.configure("json" if plan.log_format == "json" else "text")
    uvloop.run(up(plan))


async def up(plan: Plan) -> None:
    """Until SIGINT or SIGTERM, then all end in order. SIGHUP begins gateways and nodes anew, one by one."""
    stopping, rolling = on_signals(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, rolling.set)
    with tempfile.TemporaryDirectory(prefix="shoal-up-") as folder:
        cluster = _Cluster(plan, Path(folder))
        try:
            starting = asyncio.create_task(cluster.start())
            await either(starting, stopping)
            if not starting.done():
                starting.cancel()
            else:
                await starting
            while not stopping.is_set():
                await _first(stopping, rolling)
                if rolling.is_set() and not stopping.is_set():
                    rolling.clear()
                    await cluster.roll(stopping)
        finally:
            await cluster.end()


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


class _Cluster:
    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._server = _server(plan, folder)
        self._sockets = _sockets(plan.host, plan.port, plan.gateways)
        self._own = plan.nodes if isinstance(plan.nodes, list) else [{} for _ in range(plan.nodes)]
        self._turns = SharedTurns(len(self._own))
        self._queue: list[Child] = []
        self._gateways: list[Child] = []
        self._nodes: list[Child] = []

    async def start(self) -> None:
        """Raises QueueUnavailable where the queue server does not start."""
        plan, url = self._plan, self._plan.queue.url
        if self._server is not None:
            command, url = self._server.command(), self._server.url
            environment = self._server.environment
            spec = Spec(name="queue", command=lambda _: command, environment=environment, tells_ready=False)
            self._queue = [Child(spec)]
            await self._listening(self._server)
        join = ["--nats", url, "--pool", plan.pool, "--log-format", plan.log_format]
        shared = {"objects": objects_url(plan.objects, _home(plan))}
        share = shared | {"memory": str(int(devices.memory_bytes() * MEMORY_SHARE / max(1, len(self._own))))}
        self._nodes = [
            Child(_node(f"node-{number}", [*join, *words(share | plan.node | options)], self._turns))
            for number, options in enumerate(self._own, 1)
        ]
        listen = ["--host", plan.host, *words(shared | plan.gateway)]
        self._gateways = [
            Child(_gateway(f"gateway-{number}", [*join, *listen], sock.fileno()))
            for number, sock in enumerate(self._sockets, 1)
        ]
        are_ready = await asyncio.gather(*(child.wait_ready() for child in (*self._nodes, *self._gateways)))
        if not all(are_ready):
            log.error("some are not ready; their lines say why")
            return
        address = f"http://{plan.host}:{self._sockets[0].getsockname()[1]}"
        log.info("the cluster is up", extra=logs.fields(url=address, queue=url, nodes=len(self._nodes)))

    async def roll(self, stopping: asyncio.Event) -> None:
        """Each gateway, then each node, replaced by another of its kind."""
        for children in (self._gateways, self._nodes):
            for index, child in enumerate(children):
                if stopping.is_set():
                    return
                children[index] = await replace(child)
                log.info("replaced", extra=logs.fields(child=child.spec.name))

    async def end(self) -> None:
        """Gateways finish, then nodes, then the queue server goes."""
        for children in (self._gateways, self._nodes, self._queue):
            await asyncio.gather(*(child.end() for child in children))
        for sock in self._sockets:
            sock.close()
        self._turns.close()
        log.info("the cluster is down")

    async def _listening(self, server: QueueServer) -> None:
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                while not await asyncio.to_thread(server.is_listening):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise QueueUnavailable("the queue server does not start; its last lines say why") from None


def _home(plan: Plan) -> Path | None:
    return Path(plan.node["home"]) if "home" in plan.node else None


def _server(plan: Plan, folder: Path) -> QueueServer | None:
    from shoal.cli._options import parse_size

    queue = plan.queue
    if queue.url:
        return None
    binary = Path(queue.binary) if queue.binary else None
    memory = parse_size(queue.memory)
    server = QueueServer(ServerSettings(folder=folder, port=queue.port, binary=binary, memory_bytes=memory))
    if server.is_listening():
        raise InvalidInput(
            f"a queue server is already at {server.url}; `queue.port` or --queue-port takes another"
        )
    return server


def _sockets(host: str, port: int, count: int) -> list[socket.socket]:
    """One for each gateway, all on one port. Raises OSError with the address in it."""
    from shoal.gateway.server import listen

    if count > 1:  # sockets that share a port would also share it with another cluster's
        with listen(host, port) as alone:
            port = alone.getsockname()[1]
    sockets = []
    for _ in range(count):
        sock = listen(host, port, shared=count > 1)
        sock.listen(4096)
        port = sock.getsockname()[1]
        sockets.append(sock)
    return sockets


def _gateway(name: str, options: Sequence[str], fd: int) -> Spec:
    command = [sys.executable, "-m", "shoal", "gateway", "--fd", str(fd), *options]
    return Spec(name=name, command=lambda _: command, fds=(fd,))


def _node(name: str, options: Sequence[str], turns: SharedTurns) -> Spec:
    """Called after its child, and otherwise each time it is begun: two of them may overlap."""

    def command(generation: int) -> list[str]:
        named = [] if "--name" in options else ["--name", name if generation == 1 else f"{name}.{generation}"]
        return [sys.executable, "-m", "shoal", "node", *named, *options]

    return Spec(name=name, command=command, fds=turns.fds, environment=turns.environment)
