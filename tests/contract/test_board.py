"""What the board owes, on a real queue server."""

import asyncio
import secrets

import pytest

from shoal.protocol.status import ModelStatus, NodeStatus
from shoal.queue import Limits
from shoal.queue.jetstream import JetStreamQueue
from shoal.testing.nats import nats_server

ODD = "model/ö rg__x/mo.del*>:int8"


class Reader:
    def __init__(self):
        self.notes: dict[str, bytes] = {}
        self.changes: list[tuple[str, bytes | None]] = []
        self.nodes: dict[str, NodeStatus] = {}
        self._changed = asyncio.Event()

    def noted(self, key, note):
        self.changes.append((key, note))
        if note is None:
            self.notes.pop(key, None)
        else:
            self.notes[key] = note
        self._changed.set()

    def told(self, status):
        self.nodes[status.node] = status
        self._changed.set()

    async def until(self, condition):
        async with asyncio.timeout(10):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture(scope="module")
def nats():
    with nats_server() as server:
        yield server


@pytest.fixture
async def join(nats):
    """Joins the same pool each time it is called."""
    pool, joined = secrets.token_hex(4), []

    async def join():
        queue = await JetStreamQueue.connect(nats.url, pool, Limits(bytes_per_line=1 << 20))
        joined.append(queue)
        return queue

    yield join
    for queue in joined:
        await queue.close()


async def test_notes_put_up_before_and_after_a_reader_came_reach_it_and_the_last_of_a_key_counts(join):
    board, reader = (await join()).board, Reader()
    board.put(ODD, b"old")
    board.put(ODD, b"new")
    await (await join()).board.watch(reader)
    await reader.until(lambda: reader.notes == {ODD: b"new"})
    board.put("model/b", b"b")
    await reader.until(lambda: reader.notes == {ODD: b"new", "model/b": b"b"})


async def test_a_note_taken_down_is_gone_for_those_who_read_it_and_for_those_who_come_later(join):
    board, reader, late = (await join()).board, Reader(), Reader()
    await board.watch(reader)
    board.put("a", b"a")
    await reader.until(lambda: reader.notes)
    board.take_down("a")
    board.put("b", b"b")
    await reader.until(lambda: reader.notes == {"b": b"b"})
    await (await join()).board.watch(late)
    await late.until(lambda: late.notes == {"b": b"b"})


async def test_a_note_that_two_put_up_stays_when_one_takes_it_down(join):
    one, two, reader = (await join()).board, (await join()).board, Reader()
    for board in (one, two):
        await board.watch(Reader())
        board.put("a", b"a")
    await (await join()).board.watch(reader)
    await reader.until(lambda: reader.notes)
    one.take_down("a")
    await reader.until(lambda: reader.changes[-2:] == [("a", None), ("a", b"a")] or len(reader.changes) > 3)
    assert reader.notes == {"a": b"a"}


async def test_a_status_reaches_every_reader_of_the_pool(join):
    readers = [Reader(), Reader()]
    for reader in readers:
        await (await join()).board.watch(reader)
    status = NodeStatus(node="host.1", models={"org/m": ModelStatus(state="ready", pinned=True)}, draining=True)
    teller = await join()
    for reader in readers:
        while not reader.nodes:
            teller.board.tell(status)
            await asyncio.sleep(0.01)
        assert reader.nodes == {"host.1": status}


async def test_a_queue_server_that_lost_its_notes_gets_them_again():
    with nats_server() as server:
        owner = await JetStreamQueue.connect(server.url)
        reading = await JetStreamQueue.connect(server.url)
        owner.board.put("a", b"1")
        reader, late = Reader(), Reader()
        await reading.board.watch(reader)
        await reader.until(lambda: reader.notes == {"a": b"1"})
        server.kill()
        owner.board.put("a", b"2")
        server.start()
        await reader.until(lambda: reader.notes == {"a": b"2"})
        newcomer = await JetStreamQueue.connect(server.url)
        await newcomer.board.watch(late)
        await late.until(lambda: late.notes == {"a": b"2"})
        for queue in (owner, reading, newcomer):
            await queue.close()


async def test_nothing_is_heard_while_the_queue_server_is_away():
    with nats_server() as server:
        queue = await JetStreamQueue.connect(server.url)
        assert queue.board.listening_s() > 0
        server.kill()
        async with asyncio.timeout(30):
            while queue.board.listening_s():
                await asyncio.sleep(0.01)
            server.start()
            while not queue.board.listening_s():
                await asyncio.sleep(0.01)
        await queue.close()
