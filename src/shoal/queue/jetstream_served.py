"""What the nodes that pull from a line of classes tell each other: how far they have served which class.

One small message a pull, to those that pull from the same line; none for a line without classes.
"""

import asyncio
import random

from shoal.protocol import subjects
from shoal.queue import jetstream_frames as frames
from shoal.queue.jetstream_line import Line, Lines
from shoal.queue.jetstream_link import Link

MOST_TELLERS = 16
"""Where more nodes than this pull from a line, each tells of some of its pulls only: all hear all that is told."""


class ServedTelling:
    def __init__(self, link: Link, pool: str, node: str, lines: Lines) -> None:
        self._link, self._pool, self._node, self._lines = link, pool, node, lines
        self._era = ""
        self._leaving: set[asyncio.Task[None]] = set()

    def follow(self, line: Line) -> None:
        line.subscription = self._link.subscribe(subjects.served(self._pool, line.name), self._on_served)

    def leave(self, line: Line) -> None:
        self._leaving.add(task := asyncio.ensure_future(self._link.unsubscribe(line.subscription)))
        task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        await asyncio.gather(*self._leaving)

    def begin(self, era: str) -> None:
        """`era` is when the stream was made: places in another mean nothing."""
        if era != self._era:
            self._era = era
            for line in self._lines.all():
                line.forget_served()

    def tell(self, line: Line) -> None:
        if not line.untold:
            return
        untold, line.untold, heard, line.heard = line.untold, set(), line.heard, 0
        if heard > MOST_TELLERS and random.random() > MOST_TELLERS / heard:  # noqa: S311
            return
        for priority in {priority for priority, _ in untold}:
            classes = [size_class for each, size_class in untold if each == priority]
            marks, newest = line.served[priority].told(classes)
            served = frames.Served(self._node, self._era, priority, newest, marks)
            self._link.publish(subjects.served(self._pool, line.name), frames.encode_served(served))

    def _on_served(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        served = frames.decode_served(payload)
        line = self._lines.get(subjects.served_line(subject.decode()))
        if line is None or served.node == self._node or served.era != self._era:
            return
        line.heard += 1
        line.heard_at = asyncio.get_running_loop().time()
        line.served[served.priority].heard(served.marks, served.newest)
