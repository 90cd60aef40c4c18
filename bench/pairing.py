"""Shoal and one other, up together and measured in turn, so that a machine that drifts drifts for both."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from environments import PEERS, environment
from recipes import DEVICE, QUIET, RECIPES
from shoal.catalog.store import Store
from shoal.testing.server import free_port
from sides import MODEL, InProcess, Load, Server, Side, Speed

T = TypeVar("T")


class Pair:
    """Both are frozen but for the one that is being measured: what an idle server burns is not to count."""

    def __init__(self, ours: Side, theirs: Side) -> None:
        self._sides = ours, theirs

    def speeds(self, load: Load, seconds: float) -> tuple[Speed, Speed]:
        return self._each(lambda side: side.load(load, seconds))

    def vectors(self, texts: Sequence[str]) -> tuple[list[list[float]], list[list[float]]]:
        return self._each(lambda side: side.vectors(texts))

    def megabytes(self) -> tuple[float, float]:
        return self._each(lambda side: side.tree.processes.memory().pss_bytes / 1e6)

    def seconds_to_first_vector(self) -> tuple[float, float]:
        return self._each(lambda side: side.ready_s)

    def _each(self, measure: Callable[[Side], T]) -> tuple[T, T]:
        ours, theirs = (_thawed(side, measure) for side in self._sides)
        return ours, theirs


@contextlib.contextmanager
def paired(name: str, store: Store) -> Iterator[Pair]:
    """Shoal and the peer called `name`, started one after the other. Raises NotHere, RuntimeError."""
    with contextlib.ExitStack() as stack:
        sides = []
        for start in (start_shoal, lambda store: start_peer(name, store)):
            side = start(store)
            stack.callback(side.end)
            side.tree.settle()
            side.tree.freeze()
            sides.append(side)
        yield Pair(*sides)


def start_shoal(store: Store) -> Side:
    port = free_port()
    command = [sys.executable, "-m", "shoal", "serve", "--port", str(port)]
    command += ["--home", str(store.home), "--pin", MODEL]
    return Server("shoal", command, dict(os.environ), port, PEERS / "shoal-server.log")


def start_peer(name: str, store: Store) -> Side:
    folder = store.resolve(MODEL).folder
    if name == "st":
        return InProcess(folder, DEVICE)
    recipe, port = RECIPES[name], free_port()
    command = recipe.command(environment(name, recipe.needs), folder, port)
    variables = os.environ | QUIET | recipe.variables
    return Server(name, command, variables, port, PEERS / f"{name}-server.log")


def _thawed(side: Side, measure: Callable[[Side], T]) -> T:
    side.tree.thaw()
    try:
        return measure(side)
    finally:
        side.tree.settle()
        side.tree.freeze()
