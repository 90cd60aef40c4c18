"""Holding a client's connection while its job is done: the answer, the deadline, or the client leaving."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from shoal.gateway.asgi import Receive
from shoal.protocol.envelope import Chunk
from shoal.protocol.errors import Cancelled, DeadlineExceeded
from shoal.queue import Inbox

WATCH_AFTER_S = 0.05
"""Most answers come sooner; only then is it worth a task to notice that a client has left."""


async def answers(inbox: Inbox, deadline: float, receive: Receive) -> AsyncIterator[Chunk]:
    """Chunks up to the last. Raises Cancelled when the client left, DeadlineExceeded at `deadline` (unix s)."""
    quick = min(WATCH_AFTER_S, deadline - time.time())
    try:
        async with asyncio.timeout(quick):
            chunk = await inbox.next()
    except TimeoutError:
        pass
    else:
        yield chunk
        if chunk.last:
            return
    leaving = asyncio.ensure_future(receive())
    try:
        while True:
            chunk = await _next(inbox, deadline, leaving)
            yield chunk
            if chunk.last:
                return
    finally:
        leaving.cancel()


async def _next(inbox: Inbox, deadline: float, leaving: "asyncio.Future[Any]") -> Chunk:
    coming = asyncio.ensure_future(inbox.next())
    try:
        await asyncio.wait(
            [coming, leaving], timeout=max(0.0, deadline - time.time()), return_when=asyncio.FIRST_COMPLETED
        )
        if coming.done():
            return coming.result()
        if leaving.done():
            raise Cancelled("the client left")
        raise DeadlineExceeded("no answer came before the deadline; X-Shoal-Timeout-Ms or --timeout changes it")
    finally:
        coming.cancel()
