"""The README is true: its Python and curl lines run, and what it names in commands, tables and prose exists."""

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from shoal.cli import Options, build_app
from shoal.observe import metrics
from shoal.protocol.errors import BY_CODE
from shoal.testing.checkpoints import tiny_encoder

pytestmark = [pytest.mark.clients, pytest.mark.models]

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCS = [README, (ROOT / "CONTRIBUTING.md").read_text()]
DEFAULT_URL = "http://127.0.0.1:8080"


def blocks(language: str, document: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)


def commands(program: str) -> list[list[str]]:
    """Every command line of the documents that starts `program`, as words, without variables set before it."""
    scripts = "\n".join(block for document in DOCS for block in blocks("sh", document))
    lines = [shlex.split(line) for line in re.split(r"\n|&&", scripts.replace("\\\n", " "))]
    bare = [list(itertools.dropwhile(re.compile(r"[A-Z_]+=").match, words)) for words in lines]
    return [words for words in bare if words[:1] == [program]]


@pytest.fixture(scope="module")
def help_of():
    """What `shoal VERB --help` prints; fails for a verb that does not exist."""
    app, runner = build_app(Options()), CliRunner()

    def ask(*verb: str) -> str:
        result = runner.invoke(app, [*verb, "--help"], env={"COLUMNS": "200"})
        assert result.exit_code == 0, f"shoal {' '.join(verb)}: {result.output}"
        return result.output

    return ask


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.splitlines()[0])
def test_a_python_block_runs_as_it_stands(block, server, tmp_path):
    code = block.replace(DEFAULT_URL, server.url)
    tiny_encoder(tmp_path / "my-finetune")
    assert code != block
    # Tests that load models set such words for themselves; a reader of the README has not.
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_OFFLINE")}
    words = [sys.executable, "-c", code]
    ran = subprocess.run(
        words, capture_output=True, text=True, timeout=120, check=False, env=environment, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("words", commands("curl"), ids=lambda words: words[1].removeprefix(DEFAULT_URL))
def test_a_curl_line_gets_an_answer_in_json(words, server):
    asked = [word.replace(DEFAULT_URL, server.url) for word in words]
    ran = subprocess.run([*asked, "--silent", "--fail-with-body"], capture_output=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout
    assert json.loads(ran.stdout).keys() & {"items", "scores", "data"}


@pytest.mark.parametrize("words", commands("shoal"), ids=" ".join)
def test_a_shoal_command_has_a_verb_and_options_that_exist(words, help_of):
    _, verb, *rest = words
    part_of = getattr(typer.main.get_command(build_app(Options())).commands[verb], "commands", {})
    said = help_of(verb, *[word for word in rest[:1] if word in part_of])
    assert [word for word in rest if word.startswith("--") and f"{word} " not in said] == []


@pytest.mark.parametrize("words", commands("make"), ids=" ".join)
def test_a_make_command_names_a_target_that_exists(words):
    ran = subprocess.run(["make", "-C", ROOT, "-n", *words[1:]], capture_output=True)
    assert ran.returncode == 0, ran.stderr


def test_every_limit_is_an_option_of_serve_with_the_default_that_the_table_says():
    serve = typer.main.get_command(build_app(Options())).commands["serve"]
    defaults = {option: parameter.default for parameter in serve.params for option in parameter.opts}
    table = re.findall(r"^\| `(--[a-z-]+)` \| (\d+) \|", README, re.MULTILINE)
    assert len(table) > 8
    assert {option: float(default) for option, default in table} == {
        option: float(defaults[option]) for option, _ in table
    }


def test_every_error_in_the_table_has_that_status():
    rows = re.findall(r"^\| ([\d, ]+) \| (`[A-Z_`, ]+`) \|", README, re.MULTILINE)
    named = {code: statuses for statuses, codes in rows for code in re.findall(r"[A-Z_]{3,}", codes)}
    assert {code for code, statuses in named.items() if str(BY_CODE[code].status) not in statuses} == set()
    unanswered = {"CANCELLED", "RATE_LIMIT"}  # nobody reads the one, nothing gives the other yet
    assert named.keys() == BY_CODE.keys() - unanswered


def test_every_metric_named_exists_and_none_is_left_out():
    exposed = {name for family in metrics.REGISTRY.collect() for name in [family.name, f"{family.name}_total"]}
    named = set(re.findall(r"`(shoal_[a-z_]+)`", README))
    assert named <= exposed
    assert {family.name for family in metrics.REGISTRY.collect()} == {n.removesuffix("_total") for n in named}
