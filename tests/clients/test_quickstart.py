"""What `make run` starts: it shows real answers, its curl and Python lines give the same, and Ctrl-C drains it."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from shoal.testing.server import free_port

pytestmark = [pytest.mark.clients, pytest.mark.models]

SCRIPT = Path(__file__).parents[2] / "scripts" / "quickstart.py"


class Run(NamedTuple):
    process: subprocess.Popen[str]
    said: str


@contextlib.contextmanager
def quickstart(home: Path, log: Path) -> Iterator[Run]:
    """The script, once it has said that all is up. The server's log goes into the file `log`."""
    environment = os.environ | {"SHOAL_HOME": str(home), "SHOAL_PORT": str(free_port())}
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, SCRIPT], stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment
        )
    deadline = threading.Timer(120, process.terminate)
    deadline.start()
    try:
        said = ""
        for line in process.stdout:
            said += line
            if line.startswith("Shoal is up"):
                break
        yield Run(process, said)
    finally:
        deadline.cancel()
        process.terminate()
        process.stdout.close()
        process.wait()


@pytest.fixture(scope="module")
def run(home, tmp_path_factory) -> Iterator[Run]:
    with quickstart(home, tmp_path_factory.mktemp("run") / "log") as running:
        yield running


def shown(run: Run, pattern: str) -> str:
    return re.search(pattern, run.said, re.MULTILINE | re.DOTALL)[1]


def shown_scores(run: Run) -> list[float]:
    return [float(score) for score in re.findall(r"^  score +(\S+)  ", run.said, re.MULTILINE)]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_lines_give_the_vector_and_the_scores_that_were_shown(run):
    lines = re.findall(r"^curl .*?\n\n", run.said, re.MULTILINE | re.DOTALL)
    encoded, scored = (json.loads(subprocess.check_output(["sh", "-c", f"{line.strip()} -s"])) for line in lines)
    first = np.array(shown(run, r"numbers: \[(.*?)\]").split(), float)
    assert encoded["items"][0]["dense"]["values"][:5] == pytest.approx(first.tolist(), abs=1e-3)
    assert [entry["score"] for entry in scored["scores"]] == pytest.approx(shown_scores(run), abs=1e-2)


def test_the_python_lines_give_the_scores_that_were_shown(run):
    code = shown(run, r"^(import shoal\n.*?)\n\n")
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    scores = [float(line.split()[0]) for line in printed.splitlines()[-3:]]
    assert scores == pytest.approx(shown_scores(run), abs=1e-2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_the_server_and_all_ends_well(home, tmp_path, number):
    log = tmp_path / "log"
    with quickstart(home, log) as run:
        run.process.send_signal(number)
        assert run.process.wait(60) == 0
        assert log.read_text().splitlines()[-1].endswith("stopped")
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(shown(run, r"Client\(\"http://127.0.0.1:(\d+)\"")))) != 0


def test_a_port_that_is_taken_is_said_at_once_with_what_to_do(home):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        environment = os.environ | {"SHOAL_HOME": str(home), "SHOAL_PORT": str(port)}
        ran = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, env=environment, timeout=60)
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert f"port {port} on 127.0.0.1 cannot be used" in ran.stderr
    assert "SHOAL_PORT=8090 make run" in ran.stderr
