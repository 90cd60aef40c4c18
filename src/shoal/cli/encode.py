"""`shoal encode`: texts to vectors by a running server, for a look, as JSON lines, or as a numpy file."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli._asking import DEFAULT_URL, Key, Url, connect, gather
from shoal.protocol.errors import InvalidInput, ShoalError

if TYPE_CHECKING:
    from shoal.client import Client
    from shoal.client.answers import Encoding

TEXTS_A_CALL = 1024
"""Enough for several requests at once, few enough that the progress bar moves."""


def command(app: typer.Typer) -> None:
    @app.command()
    def encode(
        model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.")],
        texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Texts to encode.")] = None,
        file: Annotated[str | None, typer.Option(help="A text a line; - reads stdin.")] = None,
        url: Url = DEFAULT_URL,
        api_key: Key = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each text.")] = False,
        npy: Annotated[Path | None, typer.Option(help="Write all vectors to this numpy file.")] = None,
        kind: Annotated[
            str | None, typer.Option(help="dense, sparse or multivector; else what the model gives first.")
        ] = None,
        dimensions: Annotated[int | None, typer.Option(min=1, help="A shorter width, if trained for.")] = None,
        is_query: Annotated[
            bool | None, typer.Option("--query/--passage", help="Apply the model's prompt for these.")
        ] = None,
        prompt: Annotated[str | None, typer.Option(help="Apply the model's prompt of this name.")] = None,
    ) -> None:
        """Turn texts into vectors."""
        from shoal.cli import _vectors

        if npy is not None and (as_json or not npy.absolute().parent.is_dir()):
            raise InvalidInput(f"--npy {npy}: " + ("not with --json" if as_json else "there is no such folder"))
        given = gather(texts, file, "texts")
        options = {"kinds": kind, "dimensions": dimensions, "is_query": is_query, "prompt_name": prompt}
        with connect(url, api_key, is_bulk=file is not None) as client:
            # Lines that appear on the same terminal show progress enough, and a bar would tear them.
            has_bar = npy is not None or not sys.stdout.isatty()
            rows = _rows(client, model, given, options, has_bar=has_bar)
            if npy is not None:
                failed = _vectors.write(npy, list(rows))
            else:
                show = _vectors.print_json if as_json else _vectors.print_lines
                failed = show(given, rows)
        if failed:
            typer.echo(f"error: {failed} of {len(given)} texts could not be encoded", err=True)
            raise typer.Exit(1)


def _rows(
    client: "Client", model: str, texts: Sequence[str], options: dict[str, Any], *, has_bar: bool
) -> "Iterator[Encoding | ShoalError]":
    """One vector or error per text, in order; many of them under a progress bar on stderr if that is seen."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    is_shown = has_bar and console.is_terminal and len(texts) > TEXTS_A_CALL
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    # rich would send what is printed meanwhile to its own console, away from where stdout goes.
    with Progress(
        *columns, console=console, transient=True, disable=not is_shown, redirect_stdout=False
    ) as progress:
        bar = progress.add_task("encoding", total=len(texts))
        for start in range(0, len(texts), TEXTS_A_CALL):
            some = texts[start : start + TEXTS_A_CALL]
            yield from client.encode(model, some, errors="return", **options)
            progress.advance(bar, len(some))
