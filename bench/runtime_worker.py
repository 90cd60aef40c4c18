"""A model's runtime without the road: `python bench/runtime_worker.py HOME MODEL`, asked by bench/worker.py.

The best that a machine could do with this engine: a thread a stream, each tokenising texts of its own, sorting
them by length and running micro-batches cut as the host cuts them, with nothing to wait for and nobody to answer.
"""

import itertools
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shoal.catalog.store import Store
from shoal.families import Prepared
from shoal.node.devices import default_profile
from shoal.protocol.items import Item
from shoal.runtimes import Runtime, microbatch, open_runtime
from shoal.runtimes.memory import share_one_arena
from shoal.runtimes.silence import silence
from worker import answer

WINDOW = 128
"""Texts that are sorted together: as many as the loads have requests at once, or more."""


class Drive:
    def __init__(self, runtime: Runtime, texts: list[str], until: float) -> None:
        self._runtime, self._texts, self._until = runtime, texts, until
        self._turn = itertools.count()
        self.done: list[tuple[float, int]] = []
        """When a micro-batch was done, and its items."""

    def stream(self, number: int) -> None:
        profile = self._runtime.profile
        while time.perf_counter() < self._until:
            entries = self._runtime.prepare(self._window())
            ready = [entry for entry in entries if isinstance(entry, Prepared)]
            pieces = microbatch.cut([entry.tokens for entry in ready], 1, profile)
            for piece in pieces:
                self._runtime.run([ready[index] for index in piece], number)
                self.done.append((time.perf_counter(), len(piece)))

    def _window(self) -> list[Item]:
        start = next(self._turn) * WINDOW
        return [Item(self._texts[(start + i) % len(self._texts)], normalize=True) for i in range(WINDOW)]


def main(home: str, name: str) -> None:
    share_one_arena()
    silence()
    model = Store(Path(home)).resolve(name)
    runtime = open_runtime(model.folder, model.facts, default_profile(model.facts, model.card.tolerance))

    def load(texts: list[str], seconds: float, warm_up_s: float = 1.0) -> float:
        """Texts a second."""
        since = time.perf_counter() + warm_up_s
        drive = Drive(runtime, texts, since + seconds)
        streams = range(runtime.profile.streams)
        with ThreadPoolExecutor(len(streams)) as threads:
            list(threads.map(drive.stream, streams))
        return sum(items for at, items in drive.done if since <= at <= since + seconds) / seconds

    answer(load=load)


if __name__ == "__main__":
    main(*sys.argv[1:])
