"""`shoal encode`: texts to vectors by a running server, for a look, as JSON lines, or as a numpy file."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli._asking import DEFAULT_URL, Key, Url, complain, connect, gather, shortened
from shoal.protocol.errors import InvalidInput, ShoalError

if TYPE_CHECKING:
    from shoal.client import Client
    from shoal.protocol.tensors import Array

TEXTS_A_CALL = 1024
"""Enough for several requests at once, few enough that the progress bar moves."""
SHOWN_NUMBERS = 6


def command(app: typer.Typer) -> None:
    @app.command()
    def encode(
        model: Annotated[str, typer.Argument(help="Name of the model.")],
        texts: Annotated[list[str] | None, typer.Argument(help="Texts to encode.", metavar="TEXT")] = None,
        file: Annotated[str | None, typer.Option(help="A text a line; - reads stdin.")] = None,
        url: Url = DEFAULT_URL,
        api_key: Key = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each text.")] = False,
        npy: Annotated[Path | None, typer.Option(help="Write all vectors to this numpy file.")] = None,
        dimensions: Annotated[int | None, typer.Option(min=1, help="A shorter width, if trained for.")] = None,
        is_query: Annotated[
            bool | None, typer.Option("--query/--passage", help="Apply the model's prompt for these.")
        ] = None,
    ) -> None:
        """Turn texts into vectors."""
        if npy is not None and (as_json or not npy.absolute().parent.is_dir()):
            raise InvalidInput(f"--npy {npy}: " + ("not with --json" if as_json else "there is no such folder"))
        given = gather(texts, file, "texts")
        with connect(url, api_key, is_bulk=file is not None) as client:
            # Lines that appear on the same terminal show progress enough, and a bar would tear them.
            has_bar = npy is not None or not sys.stdout.isatty()
            rows = _rows(client, model, given, dimensions, is_query, has_bar=has_bar)
            if npy is not None:
                failed = _write(npy, list(rows))
            else:
                failed = _print_json(given, rows) if as_json else _print(given, rows)
        if failed:
            typer.echo(f"error: {failed} of {len(given)} texts could not be encoded", err=True)
            raise typer.Exit(1)


def _rows(
    client: "Client",
    model: str,
    texts: Sequence[str],
    dimensions: int | None,
    is_query: bool | None,
    *,
    has_bar: bool,
) -> "Iterator[Array | ShoalError]":
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
            yield from client.encode(model, some, errors="return", dimensions=dimensions, is_query=is_query)
            progress.advance(bar, len(some))


def _print(texts: Sequence[str], rows: "Iterator[Array | ShoalError]") -> int:
    """The shape, then a line for each text. Gives how many failed."""
    failed = 0
    is_first = True
    for index, (text, row) in enumerate(zip(texts, rows, strict=True)):
        if isinstance(row, ShoalError):
            complain(index, row)
            failed += 1
            continue
        if is_first:
            typer.echo(f"[{len(texts)}, {row.size}] {row.dtype}")
            is_first = False
        numbers = " ".join(f"{number:9.5f}" for number in row[:SHOWN_NUMBERS].tolist())
        typer.echo(f"{numbers} …  {shortened(text, 60)}")
    return failed


def _print_json(texts: Sequence[str], rows: "Iterator[Array | ShoalError]") -> int:
    """A JSON object a line, with the text and its vector or error. Gives how many failed."""
    import msgspec

    failed = 0
    for text, row in zip(texts, rows, strict=True):
        line: dict[str, object] = {"text": text}
        if isinstance(row, ShoalError):
            line["error"] = {"code": row.code, "message": row.message}
            failed += 1
        else:
            line["vector"] = row.tolist()
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    return failed


def _write(path: Path, rows: "Sequence[Array | ShoalError]") -> int:
    """All rows as one matrix, or nothing where one is missing: row i is text i. Gives how many failed."""
    import numpy as np

    vectors = [row for row in rows if not isinstance(row, ShoalError)]
    if len(vectors) == len(rows):
        matrix = np.stack(vectors)
        with path.open("wb") as file:
            np.save(file, matrix)
        typer.echo(f"{path}: {list(matrix.shape)} {matrix.dtype}", err=True)
        return 0
    for index, row in enumerate(rows):
        if isinstance(row, ShoalError):
            complain(index, row)
    typer.echo(f"{path} was not written", err=True)
    return len(rows) - len(vectors)
