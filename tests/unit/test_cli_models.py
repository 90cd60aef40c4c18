"""`shoal add`, `rm` and `models`, run as a person runs them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from model_folders import write_encoder, write_json, write_scorer

from shoal import cli
from shoal.cli import _card
from shoal.cli._progress import _sizes
from shoal.testing.adapters import write_adapter
from shoal.testing.checkpoints import tiny_encoder

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


class Shell:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, *words: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert isinstance(ended.value.code, int)
        out, err = self._capsys.readouterr()
        return ended.value.code, out, err

    def read(self, *words: str) -> Any:
        """What a command that succeeds prints as JSON."""
        code, out, _ = self.run(*words)
        assert code == 0
        return json.loads(out)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    return Shell(capsys)


def test_adding_a_folder_tells_what_was_found_in_it(shell: Shell, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "mine")
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    write_json(folder / "config_sentence_transformers.json", prompts)
    code, out, err = shell.run("add", str(folder))
    told = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert code == 0
    assert told["model"] == "mine"
    assert told["task"] == "encode"
    assert told["family"] == "bert, from safetensors"
    assert told["vector"] == "8 dims, mean pooling, normalised"
    assert told["limit"] == "256 tokens"
    assert told["prompts"] == "query: 'query: ' (used if none is named)"
    assert told["licence"] == "not said"
    assert told["size"].endswith(" kB")
    assert err.splitlines() == ["copying", "checking"]


def test_a_model_can_be_given_a_name_and_is_removed_by_it(shell: Shell, tmp_path: Path) -> None:
    assert shell.run("add", str(write_scorer(tmp_path / "x")), "--name", "me/reranker")[0] == 0
    assert "me/reranker" in shell.run("models")[1]
    assert shell.run("rm", "me/reranker") == (0, "removed me/reranker\n", "")
    code, out, err = shell.run("rm", "me/reranker")
    assert (code, out) == (1, "")
    assert "code: MODEL_NOT_FOUND" in err


def test_a_refused_folder_ends_with_the_reason(shell: Shell, tmp_path: Path) -> None:
    code, out, err = shell.run("add", str(write_encoder(tmp_path / "x", model_type="mamba")))
    assert (code, out) == (1, "")
    assert "error: models of type 'mamba' are not known yet; known: bert, " in err
    assert err.endswith("\ncode: INVALID_INPUT\n")


@pytest.mark.parametrize(("done", "total", "words"), [(0, 0, ""), (700_000, 91_600_000, "700.0 kB of 91.6 MB")])
def test_a_bar_tells_sizes_where_they_are_known(done: int, total: int, words: str) -> None:
    assert _sizes(done, total) == words


def test_models_says_how_to_get_the_first_one(shell: Shell) -> None:
    code, out, err = shell.run("models")
    assert (code, out) == (0, "")
    assert "shoal add NAME" in err


def test_models_lists_what_is_here_and_all_lists_what_is_known(shell: Shell, tmp_path: Path) -> None:
    shell.run("add", str(write_encoder(tmp_path / "mine")))
    here, known = shell.run("models")[1], shell.run("models", "--all")[1]
    assert [line.split()[:3] for line in here.splitlines()[1:]] == [["mine", "encode", "(default)"]]
    assert MINILM not in here
    assert "not here" in next(line for line in known.splitlines() if line.startswith(MINILM))
    assert {line.split()[0] for line in known.splitlines()} >= {"mine", MINILM, "shoal/virtual-encoder"}


def test_one_model_is_shown_with_where_its_facts_come_from(shell: Shell) -> None:
    code, out, _ = shell.run("models", MINILM)
    assert code == 0
    assert f"not here: shoal add {MINILM}" in out
    assert "unverified" in out
    assert "NOTICE" in out


def test_an_unknown_model_is_not_shown(shell: Shell) -> None:
    code, out, err = shell.run("models", "sentence-transformer/all-MiniLM-L6-v3")
    assert (code, out) == (1, "")
    assert f"did you mean {MINILM}?" in err


def test_programs_get_the_same_as_json(shell: Shell, tmp_path: Path) -> None:
    shell.run("add", str(write_encoder(tmp_path / "mine")))
    [mine] = shell.read("models", "--json")
    assert mine == shell.read("models", "mine", "--json")
    assert (mine["name"], mine["default"], mine["model"]["facts"]["dims"]) == ("mine", True, 8)
    assert mine["card"]["source"] == {"kind": "folder", "path": str(tmp_path / "mine")}
    known = {entry["name"]: entry for entry in shell.read("models", "--all", "--json")}
    assert known[MINILM]["model"] is None
    assert known[MINILM]["card"]["licence"] == "Apache-2.0"


def test_a_model_that_cannot_be_served_is_named_with_the_reason(shell: Shell, tmp_path: Path) -> None:
    shell.run("add", "shoal/virtual-encoder")
    (tmp_path / "home/models/bad.json").write_text("{")
    code, out, err = shell.run("models")
    assert code == 0
    assert "shoal/virtual-encoder" in out
    assert err.startswith("bad cannot be served: its record")
    assert shell.run("rm", "bad")[0] == 0
    assert shell.run("models")[2] == ""


def names_in(table: str) -> set[str]:
    return {line.split()[0] for line in table.splitlines()[1:]}


def test_models_are_found_by_words_task_kind_and_family_here_or_known(shell: Shell, tmp_path: Path) -> None:
    shell.run("add", str(write_encoder(tmp_path / "mine")), "--name", "acme/minilm-of-mine")
    shell.run("add", str(write_scorer(tmp_path / "judge")))
    assert names_in(shell.run("models", "minilm", "--here")[1]) == {"acme/minilm-of-mine"}
    assert names_in(shell.run("models", "minilm", "--task", "encode")[1]) >= {"acme/minilm-of-mine", MINILM}
    scorers = names_in(shell.run("models", "--task", "score")[1])
    assert "judge" in scorers
    assert "shoal/virtual-reranker" in scorers
    assert not {MINILM, "acme/minilm-of-mine"} & scorers
    assert names_in(shell.run("models", "--kind", "dense", "--family", "bert", "--here")[1]) == {
        "acme/minilm-of-mine"
    }
    assert names_in(shell.run("models", "similarity", "Swedish")[1]) == {"KBLab/sentence-bert-swedish-cased"}
    assert shell.run("models", "swedish", "klingon") == (
        0,
        "",
        "no model is like that; `shoal models --all` lists what `shoal add NAME` can bring\n",
    )


@pytest.mark.parametrize(
    ("option", "value", "known"),
    [("--task", "embed", "encode, score"), ("--kind", "late", "dense"), ("--family", "mamba", "bert, ")],
)
def test_a_filter_that_nothing_can_pass_is_refused_with_those_that_something_does(
    shell: Shell, option: str, value: str, known: str
) -> None:
    code, out, err = shell.run("models", option, value)
    assert (code, out) == (1, "")
    assert f"{option} {value}" in err
    assert known in err


def test_a_card_that_cannot_be_served_does_not_say_how_to_add_it(shell: Shell) -> None:
    refused = next(
        entry["name"] for entry in shell.read("models", "--all", "--json") if entry["card"].get("unservable")
    )
    out = shell.run("models", refused)[1]
    assert "refused" in out
    assert "shoal add" not in out


def test_a_copy_says_what_it_was_made_from_and_has_no_revision(shell: Shell, tmp_path: Path) -> None:
    shell.run("add", str(write_encoder(tmp_path / "mine")))
    out = shell.run("models", "mine")[1]
    assert f"a copy of {tmp_path / 'mine'}" in out
    assert "revision" not in out


def test_a_licence_that_its_publisher_does_not_state_is_said_in_words(shell: Shell) -> None:
    listed = shell.run("models", "--all")[1]
    assert "not stated" in listed
    assert "NOASSERTION" not in listed


def test_a_narrow_terminal_gets_fewer_columns_and_their_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [["MODEL", "TASK", "LICENCE"], ["an/encoder", "encode", "Apache-2.0"]]
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _card.print_table(rows)
    out, err = capsys.readouterr()
    assert out.splitlines() == ["MODEL       TASK", "an/encoder  encode"]
    assert "LICENCE" in err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    _card.print_table(rows)
    out, err = capsys.readouterr()
    assert (out.splitlines()[1].split(), err) == (rows[1], "")


def test_a_variant_is_shown_as_the_model_it_is_of_and_an_unknown_one_is_refused(
    shell: Shell, tmp_path: Path
) -> None:
    shell.run("add", str(write_encoder(tmp_path / "mine")))
    code, out, _ = shell.run("models", "mine:int8")
    assert (code, "mine:int8 (int8, cosine 0.99" in out) == (0, True)
    code, out, err = shell.run("models", "mine:fp4")
    assert (code, "it has: mine:int8" in err) == (1, True)
    code, out, err = shell.run("rm", "mine:int8")
    assert (code, "`shoal rm mine`" in err) == (1, True)


def test_gc_says_what_it_frees_and_frees_it(shell: Shell, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert shell.run("gc") == (0, "freed 0 bytes\n", "")
    shell.run("add", str(write_encoder(tmp_path / "mine")))
    digest = shell.read("models", "mine", "--json")["model"]["digest"]
    for path in (
        home / "artifacts" / ("0" * 64) / "model.safetensors",
        home / "staging" / "tmpx" / "model.safetensors",
        home / "downloads" / "org__m" / ("1" * 40) / "model.safetensors.part",
        home / "measured" / f"{'2' * 32}.openvino.json",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(1000))
    (home / "measured" / f"{digest[:32]}.openvino.json").write_text("{}")
    before = sorted(home.rglob("*"))
    code, out, _ = shell.run("gc", "--dry-run")
    assert (code, out.splitlines()[-1]) == (0, "would free 4.0 kB")
    assert sorted(home.rglob("*")) == before
    code, out, _ = shell.run("gc")
    assert (code, len(out.splitlines()), out.splitlines()[-1]) == (0, 5, "freed 4.0 kB")
    assert not list(home.rglob("*.part"))
    assert [path.name for path in (home / "measured").iterdir()] == [f"{digest[:32]}.openvino.json"]
    assert shell.run("gc")[1] == "freed 0 bytes\n"
    assert shell.read("models", "mine", "--json")["model"]["digest"] == digest


def test_a_disk_budget_refuses_with_sizes_and_evicts_only_when_told(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [write_encoder(tmp_path / f"m{number}", seed=number) for number in range(3)]
    shell.run("add", str(folders[0]), "--keep")
    shell.run("add", str(folders[1]))
    size = shell.read("models", "m0", "--json")["model"]["size_bytes"]
    monkeypatch.setenv("SHOAL_DISK", f"{2 * size + 100}B")
    code, _, err = shell.run("add", str(folders[2]))
    assert (code, "code: RESOURCE_EXHAUSTED" in err, "SHOAL_DISK" in err, "--evict" in err) == (
        1,
        True,
        True,
        True,
    )
    assert shell.run("add", str(folders[1]))[0] == 0, "what is here takes no more room"
    assert shell.run("add", str(folders[2]), "--evict")[0] == 0
    assert names_in(shell.run("models")[1]) == {"m0", "m2"}
    assert shell.run("add", str(folders[1]), "--disk", "1MB")[0] == 0
    code, _, err = shell.run("add", str(folders[0]), "--name", "other", "--disk", "lots")
    assert (code, "not 'lots'" in err) == (1, True)


def test_the_width_in_a_list_is_that_of_what_a_model_gives_first(shell: Shell) -> None:
    shell.run("add", "shoal/virtual-every-kind")
    _, out, _ = shell.run("models")
    head, row = (line.split("  ") for line in out.splitlines())
    found = dict(zip([c.strip() for c in head if c], [c.strip() for c in row if c], strict=True))
    assert (found["KINDS"], found["DIMS"]) == ("dense, sparse, multivector", "384")
    _, out, _ = shell.run("models", "shoal/virtual-every-kind")
    assert "vector   384 dims" in out
    assert "tokens   a vector of 32 dims each" in out


def test_adapters_are_listed_after_their_base_and_tell_what_they_change(shell: Shell, tmp_path: Path) -> None:
    tiny_encoder(tmp_path / "tiny")
    assert shell.run("add", str(tmp_path / "tiny"), "--name", "org/tiny")[0] == 0
    lora = write_adapter(tmp_path / "lora", tmp_path / "tiny", targets=["query", "value"])
    code, out, err = shell.run("add", str(lora), "--name", "acme/lora")
    assert (code, "--base NAME" in err) == (1, True)
    code, out, _ = shell.run("add", str(lora), "--name", "acme/lora", "--base", "org/tiny")
    told = dict(line.split("  ", 1) for line in out.splitlines())
    assert (code, told["adapter of"].strip()) == (0, "org/tiny")
    assert told["factors"].strip().startswith("rank 8, alpha 16, of 0.attention.self.query")
    rows = [line.split("  ")[0:2] for line in shell.run("models")[1].splitlines()[1:]]
    assert [" ".join(row).strip() for row in rows] == ["org/tiny", "+ acme/lora"]
    assert "acme/lora" in shell.run("models", "org/tiny")[1]
    code, _, err = shell.run("rm", "org/tiny")
    assert (code, "remove acme/lora before" in err) == (1, True)
    code, _, err = shell.run("gate", "acme/lora")
    assert (code, "name that" in err) == (1, True)
