"""Pushed names on a real board: heard by all, kept there whatever the queue server forgets."""

import asyncio
import contextlib
import secrets

import msgspec
import pytest

from cluster.asking import until
from pushed_states import after, alias, named, push
from shoal.catalog.ledger import Entry
from shoal.catalog.names import parse_name
from shoal.catalog.objects import Objects
from shoal.catalog.pushed import Pushed
from shoal.catalog.registry import Registry
from shoal.cli._names import Names
from shoal.queue import Limits
from shoal.queue.jetstream import JetStreamQueue
from shoal.testing.nats import nats_server

NAME = "team/enc"


class Process:
    """What one gateway or node knows."""

    def __init__(self, queue: JetStreamQueue, registry: Registry | None) -> None:
        self.queue, self.pushed, self.changes = queue, Pushed(), 0
        self.names = Names(self.pushed, registry, queue.board, self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def means(self, word: str) -> int:
        model = self.pushed.find(parse_name(word))
        return model.version if model else 0


@pytest.fixture
async def world(tmp_path):
    """The queue server, and how to join a pool of it."""
    running: list[tuple[Process, asyncio.Task]] = []
    with nats_server() as server:
        pool = secrets.token_hex(4)

        async def join(registry: Registry | None = None) -> Process:
            queue = await JetStreamQueue.connect(server.url, pool, Limits(bytes_per_line=1 << 20))
            process = Process(queue, registry)
            await queue.board.watch(process.names)
            await process.names.read()
            running.append((process, asyncio.create_task(process.names.run())))
            return process

        yield server, join
        for process, task in running:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await process.queue.close()


async def test_what_is_told_is_known_to_those_who_listen_and_to_those_who_come_later(world):
    _, join = world
    one, other = await join(), await join()
    state = named(NAME, push(NAME, 1))
    await one.names.tell(state)
    await until(lambda: other.means(NAME) == 1)
    await other.names.tell(after(state, push(NAME, 2)))
    await until(lambda: one.means(NAME) == 2)
    assert (one.changes, other.changes) == (2, 2)
    late = await join()
    assert late.means(NAME) == 2


async def test_a_server_that_forgot_its_notes_is_told_again_the_newest(world):
    server, join = world
    one, other = await join(), await join()
    first = named(NAME, push(NAME, 1))
    await one.names.tell(first)
    await other.names.tell(after(first, push(NAME, 2), alias("prod", 1)))
    await until(lambda: one.means(NAME) == 2)
    server.kill()
    server.start()
    await until(lambda: one.queue.is_up and other.queue.is_up)

    async def is_told() -> bool:
        late = await join()
        await asyncio.sleep(0.5)
        return late.means(NAME) == 2 and late.means(f"{NAME}@prod") == 1

    async with asyncio.timeout(60):
        while not await is_told():
            pass


async def test_names_in_the_registry_reach_those_without_it_and_an_unheard_one_is_found_when_asked_for(
    world, tmp_path
):
    _, join = world
    registry = Registry(Objects.open(str(tmp_path / "objects")))
    bare, holder = await join(), await join(registry)
    assert not await bare.names.look(f"{NAME}@1")
    await written(Objects.open(str(tmp_path / "objects")))
    assert holder.means(NAME) == 0
    assert await holder.names.look(f"{NAME}@1")
    assert not await holder.names.look(f"{NAME}@1"), "not again at once"
    await until(lambda: bare.means(NAME) == 1)


async def written(objects: Objects) -> None:
    """As by another gateway, which died before it told anybody."""
    entry = Entry(number=1, change=msgspec.structs.replace(push(NAME, 1), version=1))
    await objects.create("ledger/team__enc/00000001.json", msgspec.json.encode(entry))
