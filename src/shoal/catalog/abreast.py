"""Many waits at once, but not too many."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def abreast(width: int, do: Callable[[T], Awaitable[R]], things: Iterable[T]) -> list[R]:
    """`do` of each thing, in the order of the things, at most `width` at a time. The first that fails ends them
    all, and is raised as it is."""
    waiting = list(enumerate(things))[::-1]
    done: dict[int, R] = {}

    async def work() -> None:
        while waiting:
            number, thing = waiting.pop()
            done[number] = await do(thing)

    workers = [asyncio.ensure_future(work()) for _ in range(min(width, len(waiting)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [done[number] for number in sorted(done)]
