"""A node's own `/metrics`, on loopback, for a scraper on its machine: one page, which changes nothing."""

import asyncio
import contextlib
from collections.abc import Callable

from shoal.observe import metrics
from shoal.protocol.status import NodeStatus
from shoal.queue import gauges

HOST = "127.0.0.1"
MOST_HEAD_BYTES = 8192
WITHIN_S = 5.0


async def serve_metrics(port: int, status: Callable[[], NodeStatus]) -> asyncio.Server:
    """Until it is closed. Port 0 is any. Raises OSError where the port is taken."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(WITHIN_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_answer(head, status))
                await writer.drain()
        writer.close()

    try:
        return await asyncio.start_server(answer, HOST, port, limit=MOST_HEAD_BYTES)
    except OSError as error:
        raise OSError(error.errno, f"{HOST}:{port}: --metrics-port chooses another ({error.strerror})") from error


def _answer(head: bytes, status: Callable[[], NodeStatus]) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.split(b" ", 1)[0].partition(b"?")[0]
    if method != b"GET" or path != b"/metrics":
        return b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    told = status()
    gauges.show([told], told.models)
    body = metrics.page()
    kind = b"content-type: text/plain; version=0.0.4; charset=utf-8\r\n"
    return b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\nconnection: close\r\n\r\n%b" % (kind, len(body), body)
