"""Several nodes in one process, each with a real connection to a real queue server and real (virtual) runtimes."""

import asyncio
import contextlib
import secrets
import time

import msgspec

from names import VIRTUAL
from shoal.catalog.profiles import Profiles
from shoal.catalog.store import Store
from shoal.catalog.virtual_device import VirtualDevice
from shoal.node import devices
from shoal.node.agent import Agent
from shoal.node.measured import MeasuredStore
from shoal.node.settings import Settings
from shoal.node.telling import Telling
from shoal.protocol.envelope import Envelope, Job
from shoal.queue import Limits
from shoal.queue.jetstream import JetStreamQueue

LIMITS = Limits(bytes_per_line=1 << 26, lease_s=2.0)


class Node:
    """One agent. `kill` ends it as a crash would: nothing is given back, nobody is told."""

    def __init__(self, name: str, agent: Agent, queue: JetStreamQueue, telling: "asyncio.Task[None]") -> None:
        self.name, self.agent, self.queue, self.telling = name, agent, queue, telling
        self.is_gone = False

    @property
    def line(self):
        return self.agent.scheduler.lines[VIRTUAL]

    def holds(self) -> bool:
        return any(replica.status == "ready" for replica in self.line.replicas)

    async def kill(self) -> None:
        self.is_gone = True
        self.telling.cancel()
        self.queue._held.give_everything_back = lambda: None
        for task in self.queue._tasks:
            task.cancel()
        await self.queue._link.close()
        with contextlib.suppress(Exception):
            await self.agent.stop()

    async def stop(self) -> None:
        self.telling.cancel()
        await self.agent.stop()
        await self.queue.close()


class Nodes:
    def __init__(self, gateway: JetStreamQueue, nodes: list[Node]) -> None:
        self.gateway, self.nodes = gateway, nodes

    async def know_one_another(self) -> None:
        """Until every node has heard that every other one has loaded the model."""
        others = len(self.nodes) - 1
        await until(
            lambda: all(n.agent.scheduler.peers.holders(VIRTUAL, time.time()) == others for n in self.nodes)
        )

    async def ask(self, *texts: str, deadline_s: float = 60.0):
        """The status and the body of one encode request, as the native dialect's msgpack."""
        inbox = await self.gateway.publish(job(texts, deadline_s))
        try:
            async with asyncio.timeout(deadline_s):
                chunk = await inbox.next()
                status, data = chunk.status, [chunk.data]
                while not chunk.last:
                    chunk = await inbox.next()
                    data.append(chunk.data)
        finally:
            inbox.close()
        return status, b"".join(data)


def job(texts, deadline_s: float = 60.0) -> Job:
    body = msgspec.msgpack.encode({"items": [{"text": text} for text in texts]})
    now = time.time()
    envelope = Envelope(
        id=secrets.token_hex(8), task="encode", model=VIRTUAL, line=VIRTUAL, dialect="native", route="encode",
        deadline=now + deadline_s, received=now, content_type="application/msgpack", size_bytes=len(body),
    )  # fmt: skip
    return Job(envelope, body)


def slow_home(folder, **device):
    """A store whose virtual model is as slow as is said."""
    store = Store(folder)
    store.add(VIRTUAL)
    place = store.resolve(VIRTUAL).folder / "virtual.json"
    place.write_bytes(msgspec.json.encode(VirtualDevice(**device)))
    return store.home


@contextlib.asynccontextmanager
async def nodes(server, home, count: int, *, pinned=(VIRTUAL,), latency_s=1.0, memory=1 << 34):
    """Each with a device of its own: a serial one is told from others of one process by its name."""
    pool = secrets.token_hex(4)
    gateway = await JetStreamQueue.connect(server.url, pool, LIMITS)
    made: list[Node] = []
    try:
        for number in range(count):
            name = f"node-{number}"
            queue = await JetStreamQueue.connect(server.url, pool, LIMITS, name=name)
            settings = Settings(
                memory_bytes=memory, pinned=frozenset(pinned), devices=(f"virtual:{number}",), latency_s=latency_s
            )
            measured = MeasuredStore(home / name)
            profiles = Profiles(home, devices.kind())
            agent = Agent(queue, Store(home), settings, measured, profiles, board=queue.board, node=name)
            agent.start()
            telling = asyncio.create_task(Telling(agent, name, pool).run(queue.board))
            made.append(Node(name, agent, queue, telling))
        await until(lambda: all(not node.agent.lacking() for node in made))
        yield Nodes(gateway, made)
    finally:
        for node in made:
            if not node.is_gone:
                await node.stop()
        await gateway.close()


async def until(condition, within_s: float = 60.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.02)
