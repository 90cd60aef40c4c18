"""How far a verb has come that moves many bytes."""

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from shoal.protocol import sizes

if TYPE_CHECKING:
    from shoal.catalog import Report


@contextlib.contextmanager
def progress() -> "Iterator[Report]":
    """A bar on a terminal; where there is none, a line for each new thing that is done."""
    if not sys.stderr.isatty():
        said: set[str] = set()

        def say(stage: str, done: int, total: int) -> None:
            if stage not in said:
                typer.echo(stage, err=True)
                said.add(stage)

        yield say
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[sizes]}")
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        bar = shown.add_task("starting", total=None, sizes="")
        yield lambda stage, done, total: shown.update(
            bar, description=stage, completed=done, total=total or None, sizes=_sizes(done, total)
        )


def _sizes(done: int, total: int) -> str:
    return f"{sizes.in_words(done)} of {sizes.in_words(total)}" if total else ""
