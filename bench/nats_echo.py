"""The least that a message there and back takes: nats-py asks, and nats-py in another process answers.

`python bench/nats_echo.py URL` is the process that answers; `round_trip_s` asks it.
"""

import asyncio
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nats
import uvloop
from nats.aio.msg import Msg

SUBJECT = "bench.echo"


@contextlib.contextmanager
def answering(url: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, str(Path(__file__)), url], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()  # it listens
        yield
    finally:
        process.kill()
        process.wait()


def round_trip_s(url: str, body: bytes, seconds: float) -> float:
    """The median."""
    return uvloop.run(_ask(url, body, seconds))


async def _ask(url: str, body: bytes, seconds: float) -> float:
    client = await nats.connect(url)
    took: list[float] = []
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        await client.request(SUBJECT, body, timeout=5)
        took.append(time.perf_counter() - began)
    await client.close()
    return statistics.median(took[len(took) // 5 :])


async def _answer(url: str) -> None:
    client = await nats.connect(url)

    async def answer(message: Msg) -> None:
        await message.respond(message.data)

    await client.subscribe(SUBJECT, cb=answer)
    await client.flush()
    print("listening", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_answer(sys.argv[1]))
