"""What whoever pushes a model says that it makes of some texts, read from where they keep it: rows for the proof.

Lines of JSON as `shoal encode --json` prints them, or a numpy archive. Knows no server.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shoal.catalog.proof import MOST_ROWS, Row
from shoal.protocol.errors import InvalidInput

Reference = str | Path | Iterable[Mapping[str, Any]]
"""A .jsonl or .npz file, or the rows themselves."""

_TEXTS, _PAIRS, _VALUES = (
    ("text", "query"),
    ("pair", "document"),
    ("values", "vector", "score", "scores", "vectors"),
)


def rows_of(reference: Reference) -> tuple[Row, ...]:
    """Each row is a `text` (or `query` and `document`), and its `vector`, its `indices` and `values`, its
    `vectors` or its `score`; `prompt` names the prompt that was put before it. An .npz has `texts` and `vectors`
    [n, dims], or `queries`, `documents` and `scores`. Raises InvalidInput, naming the row.
    """
    named = _read(Path(reference)) if isinstance(reference, str | Path) else list(reference)
    if not 0 < len(named) <= MOST_ROWS:
        raise InvalidInput(f"the reference has {len(named)} rows; it takes from 1 to {MOST_ROWS}", limit=MOST_ROWS)
    return tuple(_row(row, number) for number, row in enumerate(named, 1))


def _read(path: Path) -> Sequence[Mapping[str, Any]]:
    try:
        if path.suffix == ".npz":
            return _archived(path)
        lines = path.read_bytes().splitlines()
        return [msgspec.json.decode(line, type=dict[str, Any]) for line in lines if line.strip()]
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError) as error:
        raise InvalidInput(f"{path} holds no reference rows: {error}") from error


def _archived(path: Path) -> Sequence[Mapping[str, Any]]:
    with np.load(path, allow_pickle=False) as archive:
        found = {name: archive[name] for name in archive.files}
    if "texts" in found:
        pairs = zip(found["texts"], found["vectors"], strict=True)
        return [{"text": str(text), "vector": vector} for text, vector in pairs]
    scored = zip(found["queries"], found["documents"], found["scores"], strict=True)
    return [{"query": str(query), "document": str(text), "score": score} for query, text, score in scored]


def _row(row: Mapping[str, Any], number: int) -> Row:
    text, pair = _first(row, _TEXTS), _first(row, _PAIRS)
    values = _first(row, _VALUES)
    if not isinstance(text, str) or not isinstance(pair, str | None) or values is None:
        raise InvalidInput(
            f"row {number} of the reference has no text with its vector, or no query and document with their score"
        )
    try:
        numbers = np.asarray(values, dtype=np.float64).reshape(-1).tolist()
        indices = None if row.get("indices") is None else [int(each) for each in row["indices"]]
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the numbers in row {number} of the reference are none: {error}") from error
    return Row(text=text, values=numbers, pair=pair, indices=indices, prompt=str(row.get("prompt") or ""))


def _first(row: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)
