"""`shoal encode` and `shoal score` as a person runs them, against a server that speaks the native wire."""

import io
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from wire_server import Wire, packed, refused, serving, vector

from shoal.cli import main
from shoal.dialects.arrays import wire_array


class Run:
    """One command: its exit code, and what it wrote."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *words: str) -> None:
        with pytest.raises(SystemExit) as end:
            main(words)
        self.code = end.value.code
        self.out, self.err = capsys.readouterr()


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    app = Wire()
    with serving(app) as url:
        monkeypatch.setenv("SHOAL_URL", url)
        yield app


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_bytes("\ufeffone\r\nzwei \u2028 Zeilen\nthree".encode())
    return path


def test_texts_are_shown_with_their_shape_and_first_numbers(
    wire: Wire, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(capsys, "encode", "a/b", "one", "three", "--dimensions", "64", "--query")
    assert run.code == 0
    first, second, third = run.out.splitlines()
    assert first == "[2, 3] float32"
    assert second.split() == ["3.00000", "322.00000", "1.00000", "…", "one"]
    assert third.endswith("three")
    assert wire.bodies[0]["params"]["options"] == {"is_query": True, "dimensions": 64}


def test_json_lines_give_each_text_its_vector_or_its_error(wire: Wire, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "encode", "m", "one", "", "--json")
    first, second = (msgspec.json.decode(line) for line in run.out.splitlines())
    assert first == {"text": "one", "vector": vector("one").tolist()}
    assert second["error"]["code"] == "EMPTY_INPUT"
    assert run.code == 1
    assert "1 of 2 texts" in run.err


def packed_item(**kinds: np.ndarray) -> tuple[int, dict[str, str], bytes]:
    """An answer with one input's vector, of another kind than dense."""
    if "indices" in kinds:
        item = {"sparse": {name: wire_array(array) for name, array in kinds.items()}}
    else:
        item = {"multivector": {"values": wire_array(kinds["rows"])}}
    return packed({"items": [item]})


def test_a_model_that_gives_no_dense_vectors_shows_what_it_gives(
    wire: Wire, capsys: pytest.CaptureFixture[str]
) -> None:
    sparse = {"indices": np.array([7, 11], "<i4"), "values": np.array([0.5, 2.0], "<f4")}
    wire.script = [packed_item(**sparse), packed_item(**sparse), packed_item(rows=np.ones((2, 3), "<f4"))]
    assert Run(capsys, "encode", "m", "one").out.splitlines()[1].split() == [
        "2", "entries", "11:2.000", "7:0.500", "…", "one",
    ]  # fmt: skip
    assert "output_types" not in wire.bodies[0]["params"]
    line = msgspec.json.decode(Run(capsys, "encode", "m", "one", "--json").out)
    assert line == {"text": "one", "indices": [7, 11], "values": [0.5, 2.0]}
    heading, row = Run(capsys, "encode", "m", "one", "--kind", "multivector").out.splitlines()
    assert "3 dims a token" in heading
    assert row.split()[:2] == ["2", "tokens"]
    assert wire.bodies[2]["params"]["output_types"] == ["multivector"]


def test_a_numpy_file_is_for_dense_vectors(wire: Wire, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wire.script = [packed_item(rows=np.ones((2, 3), "<f4"))]
    run = Run(capsys, "encode", "m", "one", "--npy", str(tmp_path / "out.npy"))
    assert run.code == 1
    assert "dense vectors only" in run.err
    assert not (tmp_path / "out.npy").exists()


def test_a_prompt_and_a_label_can_be_named(wire: Wire, capsys: pytest.CaptureFixture[str]) -> None:
    Run(capsys, "encode", "m", "one", "--prompt", "query")
    Run(capsys, "score", "m", "q", "one", "--label", "entailment", "--prompt", "query")
    assert wire.bodies[0]["params"]["options"] == {"prompt_name": "query"}
    assert wire.bodies[1]["options"] == {"label": "entailment", "prompt_name": "query"}


def test_a_file_that_is_not_there_is_named_without_a_number(
    wire: Wire, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = Run(capsys, "encode", "m", "--file", str(tmp_path / "no.txt"))
    assert run.err.startswith(f"error: {tmp_path / 'no.txt'} cannot be read: No such file")


def test_a_file_is_read_a_text_a_line_and_goes_behind_interactive_work(
    wire: Wire, lines: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Run(capsys, "encode", "m", "--file", str(lines), "--json").code == 0
    assert [item["text"] for item in wire.bodies[0]["items"]] == ["one", "zwei \u2028 Zeilen", "three"]
    assert wire.headers[0]["x-shoal-priority"] == "batch"


def test_a_dash_reads_the_texts_from_stdin(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    assert Run(capsys, "encode", "m", "--file", "-").out.startswith("[2, 3] float32\n")


def test_many_texts_become_the_rows_of_a_numpy_file(
    wire: Wire, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [f"text {number}" for number in range(1500)]
    (tmp_path / "in.txt").write_text("\n".join(texts))
    target = tmp_path / "out"
    run = Run(capsys, "encode", "m", "--file", str(tmp_path / "in.txt"), "--npy", str(target))
    assert (run.code, run.out) == (0, "")
    assert np.array_equal(np.load(target), [vector(text) for text in texts])


def test_the_progress_bar_keeps_out_of_the_output(
    wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes stderr for a terminal
    (tmp_path / "in.txt").write_text("text\n" * 1500)
    run = Run(capsys, "encode", "m", "--file", str(tmp_path / "in.txt"), "--json")
    assert [msgspec.json.decode(line)["text"] for line in run.out.splitlines()] == ["text"] * 1500
    assert "encoding" in run.err


def test_a_numpy_file_with_a_row_missing_is_not_written(
    wire: Wire, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(capsys, "encode", "m", "one", "", "--npy", str(tmp_path / "out.npy"))
    assert run.code == 1
    assert "number 2: EMPTY_INPUT" in run.err
    assert not (tmp_path / "out.npy").exists()


def test_documents_are_printed_best_first_as_they_are(wire: Wire, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "score", "m", "q", "a", "[b]ccc[/b]", "bb")
    assert run.code == 0
    rows = [line.split() for line in run.out.splitlines()[1:]]
    assert rows == [["1", "10.00000", "2", "[b]ccc[/b]"], ["2", "2.00000", "3", "bb"], ["3", "1.00000", "1", "a"]]


def test_scores_can_be_had_as_json_and_cut_to_the_best(wire: Wire, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "score", "m", "q", "a", "bb", "--json", "--top-n", "1")
    assert msgspec.json.decode(run.out) == {"index": 1, "score": 2.0, "document": "bb"}


def test_a_document_that_failed_is_told_beside_the_ranking_of_the_others(
    wire: Wire, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(capsys, "score", "m", "q", "a", "", "ccc")
    assert run.code == 1
    assert [line.split()[-1] for line in run.out.splitlines()[1:]] == ["ccc", "a"]
    assert "number 2: EMPTY_INPUT" in run.err


@pytest.mark.parametrize("words", [("encode", "m", "text"), ("score", "m", "q", "doc")])
def test_without_a_server_it_is_said_how_to_start_one(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        run = Run(capsys, *words, "--url", url)
    assert run.code == 1
    assert f"no server answers at {url}" in run.err
    assert "shoal serve" in run.err


def test_what_the_server_refuses_is_told_in_its_words(wire: Wire, capsys: pytest.CaptureFixture[str]) -> None:
    wire.script = [refused(404, "MODEL_NOT_FOUND")]
    run = Run(capsys, "encode", "m", "text")
    assert (run.code, run.out) == (1, "")
    assert "said MODEL_NOT_FOUND" in run.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("encode", "m"), "no texts"),
        (("score", "m", "q"), "no documents"),
        (("encode", "m", "--file", "nowhere.txt"), "nowhere.txt"),
        (("encode", "m", "t", "--npy", "nowhere/out.npy"), "no such folder"),
        (("encode", "m", "t", "--npy", "out.npy", "--json"), "not with --json"),
    ],
)
def test_a_command_that_cannot_work_is_refused_before_anything_is_sent(
    wire: Wire,
    words: tuple[str, ...],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Run(capsys, *words)
    assert run.code == 1
    assert told in run.err
    assert wire.paths == []


def test_a_file_that_is_no_text_is_refused_with_the_place(
    wire: Wire, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "latin1.txt").write_bytes("grün".encode("latin-1"))
    run = Run(capsys, "encode", "m", "--file", str(tmp_path / "latin1.txt"))
    assert run.code == 1
    assert "not UTF-8 text: invalid" in run.err
    assert "byte 2" in run.err


def test_waiting_for_a_server_that_refuses_is_said_once_with_the_reason_and_how_long(
    wire: Wire, capsys: pytest.CaptureFixture[str]
) -> None:
    wire.script = [refused(503, "QUEUE_UNAVAILABLE", key="error", retry_after="0.01")] * 3
    run = Run(capsys, "encode", "m", "one", "--json")
    assert (run.code, len(run.out.splitlines())) == (0, 1)
    [line] = run.err.splitlines()
    assert "; trying again for up to 1" in line
