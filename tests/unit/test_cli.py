"""The command line as a whole: how it finds verbs, ends, and says what went wrong."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from shoal import __version__, cli
from shoal.protocol.errors import QueueFull


@pytest.fixture
def extra_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is searched for verbs beside the real one, holding one that fails as it is told."""
    (tmp_path / "zz_fail.py").write_text(
        "import typer\n"
        "from shoal.protocol.errors import QueueFull\n"
        "def command(app):\n"
        "    @app.command()\n"
        "    def fail(how: str):\n"
        "        'Fail as told.'\n"
        "        if how == 'ours': raise QueueFull('the queue holds [10] jobs')\n"
        "        if how == 'disk': raise PermissionError(13, 'Permission denied', '/x')\n"
        "        if how == 'stranger': raise KeyError('lost')\n"
        "        if how == 'said': raise typer.Exit(1)\n"
    )
    (tmp_path / "_zz_private.py").write_text("raise SystemExit('nobody imports me')")
    (tmp_path / "zz_no_verb.py").write_text("")
    monkeypatch.setattr(cli, "__path__", [*cli.__path__, str(tmp_path)])
    yield tmp_path
    for name in ("zz_fail", "zz_no_verb"):
        sys.modules.pop(f"shoal.cli.{name}", None)


def end_of(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_file_in_the_folder_is_a_verb(extra_verb: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert end_of("--help") == 0
    listed = capsys.readouterr().out
    assert all(f"  {verb} " in listed for verb in ("add", "rm", "models", "doctor", "fail"))
    assert "zz" not in listed


def test_an_error_of_ours_is_its_message_and_its_code(
    extra_verb: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert end_of("fail", "ours") == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "error: the queue holds [10] jobs\ncode: QUEUE_FULL\n")


def test_an_error_of_the_system_is_told_without_a_trace(
    extra_verb: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert end_of("fail", "disk") == 1
    assert capsys.readouterr().err == "error: /x: Permission denied\n"


def test_a_strangers_error_says_how_to_see_more(extra_verb: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert end_of("fail", "stranger") == 1
    err = capsys.readouterr().err
    assert err.startswith("error: unexpected KeyError: 'lost'\n")
    assert "shoal --debug" in err
    assert "Traceback" not in err


def test_debug_shows_every_error_as_it_is(extra_verb: Path) -> None:
    with pytest.raises(KeyError):
        cli.main(["--debug", "fail", "stranger"])
    with pytest.raises(QueueFull):
        cli.main(["--debug", "fail", "ours"])


def test_a_verb_that_said_why_ends_with_1_and_adds_nothing(
    extra_verb: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert end_of("fail", "said") == 1
    assert capsys.readouterr().err == ""


def test_a_mistyped_command_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert end_of("ad") == 2
    assert end_of("add") == 2
    assert end_of("models", "--nope") == 2
    assert "No such command" in capsys.readouterr().err


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert end_of("--version") == 0
    assert capsys.readouterr().out == f"shoal {__version__}\n"


def test_an_error_without_a_kind_is_still_explained() -> None:
    assert cli.explain(ValueError("odd")).startswith("error: unexpected ValueError: odd\n")


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    code = "import sys, typer\nfrom shoal.cli import main\nmain(['models', '--all', '--json'])"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"SHOAL_HOME": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_starting_imports_nothing_heavy() -> None:
    code = (
        "import sys; from shoal import cli; cli.build_app(cli.Options());"
        "print(sorted({'numpy', 'rich', 'httpx', 'openvino', 'onnxruntime', 'uvicorn'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "[]\n"


def test_every_verb_explains_itself() -> None:
    app = cli.build_app(cli.Options())
    group = typer.main.get_group(app)
    assert all(verb.help for verb in group.commands.values())
