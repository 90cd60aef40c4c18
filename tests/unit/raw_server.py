"""A server in a thread that says exactly the bytes it is told to, for what no decent server does."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from shoal.lab.load import Target

Say = Callable[["Talk"], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Talk:
    """One request that came whole: `number` over all connections, `body`, and the way back."""

    def __init__(self, number: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        self.number, self.body, self._writer = number, body, writer

    def say(self, data: bytes) -> None:
        self._writer.write(data)

    def hang_up(self) -> None:
        self._writer.transport.abort()


@contextmanager
def speaking(say: Say) -> Iterator[Target]:
    """A server that calls `say` for each request, until the block ends."""
    ready, stop = threading.Event(), asyncio.Event()
    ports: list[int] = []
    loops: list[asyncio.AbstractEventLoop] = []
    thread = threading.Thread(target=lambda: asyncio.run(_serve(say, ports, loops, ready, stop)))
    thread.start()
    ready.wait(10)
    try:
        yield Target("127.0.0.1", ports[0])
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(10)


async def _serve(say, ports, loops, ready, stop):
    count = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
                body = await reader.readexactly(length)
                count += 1
                await say(Talk(count, body, writer))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, backlog=256)
    ports.append(server.sockets[0].getsockname()[1])
    loops.append(asyncio.get_running_loop())
    ready.set()
    await stop.wait()
    server.close()
    talks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in talks:
        task.cancel()
    await asyncio.gather(*talks, return_exceptions=True)
    await asyncio.sleep(0)  # transports close in the loop's next turn
