"""How `shoal encode` shows vectors of each kind: a line for a person, a line of JSON, a numpy file.

Each function tells on stderr which texts failed, and gives how many.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from shoal.cli._asking import complain, shortened
from shoal.protocol.errors import InvalidInput, ShoalError

if TYPE_CHECKING:
    from shoal.client.answers import Encoding

SHOWN_NUMBERS = 6


def print_lines(texts: Sequence[str], rows: "Iterable[Encoding | ShoalError]") -> int:
    """The shape, then a line for each text."""
    failed = 0
    is_first = True
    for index, (text, row) in enumerate(zip(texts, rows, strict=True)):
        if isinstance(row, ShoalError):
            complain(index, row)
            failed += 1
            continue
        if is_first:
            typer.echo(_heading(len(texts), row))
            is_first = False
        typer.echo(f"{_glimpse(row)} …  {shortened(text, 60)}")
    return failed


def print_json(texts: Sequence[str], rows: "Iterable[Encoding | ShoalError]") -> int:
    """A JSON object a line: the text and its `vector`, or its `indices` and `values`, or its `vectors`."""
    import msgspec

    failed = 0
    for text, row in zip(texts, rows, strict=True):
        line: dict[str, object] = {"text": text}
        if isinstance(row, ShoalError):
            line["error"] = {"code": row.code, "message": row.message}
            failed += 1
        elif isinstance(row, tuple):
            line |= {"indices": row.indices.tolist(), "values": row.values.tolist()}
        else:
            line["vector" if row.ndim == 1 else "vectors"] = row.tolist()
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    return failed


def write(path: Path, rows: "Sequence[Encoding | ShoalError]") -> int:
    """All rows as one matrix, or nothing where one is missing: row i is text i.

    Raises InvalidInput for vectors that are not dense.
    """
    import numpy as np

    vectors = [row for row in rows if not isinstance(row, ShoalError | tuple) and row.ndim == 1]
    for index, row in enumerate(rows):
        if isinstance(row, ShoalError):
            complain(index, row)
        elif isinstance(row, tuple) or row.ndim > 1:
            raise InvalidInput(f"--npy {path} can hold dense vectors only; --json prints those of every kind")
    if len(vectors) == len(rows):
        matrix = np.stack(vectors)
        with path.open("wb") as file:
            np.save(file, matrix)
        typer.echo(f"{path}: {list(matrix.shape)} {matrix.dtype}", err=True)
    else:
        typer.echo(f"{path} was not written", err=True)
    return len(rows) - len(vectors)


def _heading(count: int, row: "Encoding") -> str:
    if isinstance(row, tuple):
        return f"{count} sparse vectors, {row.values.dtype}; the heaviest entries of each"
    if row.ndim == 1:
        return f"[{count}, {row.size}] {row.dtype}"
    return f"{count} multivectors of {row.shape[1]} dims a token, {row.dtype}; the first token of each"


def _glimpse(row: "Encoding") -> str:
    """The first numbers of a dense vector, the first token's of many, or the heaviest `entry:weight` of few."""
    if isinstance(row, tuple):
        heaviest = (-row.values).argsort(kind="stable")[:SHOWN_NUMBERS].tolist()
        shown = " ".join(f"{row.indices[at]}:{row.values[at]:.3f}" for at in heaviest)
        return f"{row.values.size:4} entries  {shown}"
    if row.ndim == 2:
        return f"{len(row):4} tokens  " + _glimpse(row[0])
    return " ".join(f"{number:9.5f}" for number in row[:SHOWN_NUMBERS].tolist())
