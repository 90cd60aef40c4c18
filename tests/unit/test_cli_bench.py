"""`shoal bench` as it is typed: what its help calls it, and that a key goes nowhere."""

import re
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from shoal.cli import Options, bench, build_app

README = (Path(__file__).parents[2] / "README.md").read_text()


@pytest.mark.parametrize("words", [["bench", "--help"], ["bench", "http://x", "--help"], ["bench"]])
def test_help_and_complaints_call_it_what_one_types(words):
    said = CliRunner().invoke(build_app(Options()), words).output
    assert "bench [OPTIONS]" in said
    assert "bench run" not in said


def test_every_option_stands_in_the_readme():
    group = typer.main.get_command(build_app(Options())).commands["bench"]
    options = [o for p in group.commands["run"].params if not p.hidden for o in p.opts if o.startswith("--")]
    (section,) = re.findall(r"^## Measure it yourself\n(.*?)^## ", README, re.MULTILINE | re.DOTALL)
    assert "--api-key" in options
    assert [option for option in options if f"{option} " not in section and f"{option}`" not in section] == []


@pytest.mark.parametrize(
    "words", [["--api-key", "secret"], ["--api-key=secret"], ["--key", "secret"], ["--key=secret"]], ids=" ".join
)
def test_the_command_line_that_a_report_keeps_has_no_key(words, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["shoal", "bench", "http://x", *words, "--seed", "2"])
    kept = bench._command()
    assert "secret" not in kept
    assert kept.startswith("shoal bench http://x ")
    assert kept.endswith("... --seed 2")
