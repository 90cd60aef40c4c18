"""What a pusher says that a model gives, from a file or from rows."""

import json
from pathlib import Path

import numpy as np
import pytest

from shoal.catalog.proof import MOST_ROWS, Row
from shoal.client.reference import rows_of
from shoal.protocol.errors import InvalidInput


def test_lines_of_shoal_encode_are_a_reference(tmp_path: Path) -> None:
    path = tmp_path / "reference.jsonl"
    lines = [
        {"text": "a", "vector": [0.25, 1]}, {"text": "b", "indices": [3, 9], "values": [1.5, 2]},
        {"text": "c", "vectors": [[1, 2], [3, 4]]}, {"query": "q", "document": "d", "score": 0.5},
        {"text": "e", "values": [1], "prompt": "query"},
    ]  # fmt: skip
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    assert rows_of(path) == (
        Row("a", [0.25, 1.0]), Row("b", [1.5, 2.0], indices=[3, 9]), Row("c", [1.0, 2.0, 3.0, 4.0]),
        Row("q", [0.5], pair="d"), Row("e", [1.0], prompt="query"),
    )  # fmt: skip
    assert rows_of(str(path)) == rows_of(lines)


def test_numpy_archives_of_texts_and_of_pairs_are_a_reference(tmp_path: Path) -> None:
    vectors = np.eye(2, 3, dtype=np.float32)
    np.savez(tmp_path / "texts.npz", texts=np.array(["a", "b"]), vectors=vectors)
    assert rows_of(tmp_path / "texts.npz") == (Row("a", [1.0, 0.0, 0.0]), Row("b", [0.0, 1.0, 0.0]))
    np.savez(tmp_path / "pairs.npz", queries=np.array(["q"]), documents=np.array(["d"]), scores=np.array([0.5]))
    assert rows_of(tmp_path / "pairs.npz") == (Row("q", [0.5], pair="d"),)
    assert rows_of([{"text": "a", "vector": vectors[0]}]) == (Row("a", [1.0, 0.0, 0.0]),)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("r.jsonl", b"", "0 rows"),
        ("r.jsonl", b"{", "no reference rows"),
        ("r.jsonl", b"[1]\n", "no reference rows"),
        ("r.jsonl", b'{"text": "a"}\n', "row 1"),
        ("r.jsonl", b'{"text": "a", "vector": [1]}\n{"vector": [1]}\n', "row 2"),
        ("r.jsonl", b'{"text": 3, "vector": [1]}\n', "row 1"),
        ("r.jsonl", b'{"text": "a", "vector": ["x"]}\n', "row 1"),
        ("r.jsonl", b'{"text": "a", "vector": [1]}\n' * (MOST_ROWS + 1), "257 rows"),
        ("r.npz", b"PK nothing", "no reference rows|cannot be read"),
    ],
)
def test_what_is_no_reference_is_refused_and_says_which_row(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=words):
        rows_of(tmp_path / name)
    with pytest.raises(InvalidInput, match="cannot be read"):
        rows_of(tmp_path / "nowhere.jsonl")


def test_an_archive_with_pickles_in_it_is_not_opened(tmp_path: Path) -> None:
    np.savez(tmp_path / "r.npz", texts=np.array(["a", object()], dtype=object), vectors=np.eye(2))
    with pytest.raises(InvalidInput, match="no reference rows"):
        rows_of(tmp_path / "r.npz")
