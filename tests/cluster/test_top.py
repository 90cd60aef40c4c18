"""`shoal top` against a real server, printed once and live on a terminal of its own."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from names import VIRTUAL
from shoal.testing.server import Server, serving

NAME = VIRTUAL.encode()
PATIENCE_S = 60.0


def ask(server: Server) -> None:
    body = {"model": VIRTUAL, "input": ["a harbour", "at dawn"]}
    httpx.post(f"{server.url}/v1/embeddings", json=body, timeout=60).raise_for_status()


def once(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "shoal", "top", *words, "--once"]
    environment = {**os.environ, "COLUMNS": "140", **environment}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


class Terminal:
    """A program in a terminal, 120 columns by 40 rows."""

    def __init__(self, words: list[str]) -> None:
        self.shown = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(COLUMNS="120", LINES="40", TERM="xterm-256color")
            os.execv(sys.executable, [sys.executable, "-m", "shoal", *words])

    def see(self, text: bytes) -> None:
        """Until it was shown since the last time. Fails where the program ends first, or it takes too long."""
        until = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            ready, _, _ = select.select([self.fd], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"{text!r} is not shown"
            self.shown += os.read(self.fd, 65536)
            assert time.monotonic() < until, f"{text!r} is not shown"
        self.shown = self.shown[self.shown.index(text) + len(text) :]

    def press(self, key: bytes) -> None:
        os.write(self.fd, key)

    def code(self) -> int:
        try:
            while os.read(self.fd, 65536):
                pass
        except OSError:
            pass  # its last process has closed it
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@contextmanager
def live(url: str) -> Iterator[Terminal]:
    terminal = Terminal(["top", url, "--every", "0.2"])
    try:
        yield terminal
    finally:
        os.close(terminal.fd)


def test_one_frame_shows_the_node_its_models_and_what_it_did(virtual_server):
    ask(virtual_server)
    httpx.post(f"{virtual_server.url}/v1/encode/not/here", json={"items": ["a"]}, timeout=60)
    ran = once(virtual_server.url)
    assert ran.returncode == 0, ran.stderr
    assert once(virtual_server.url.removeprefix("http://")).returncode == 0
    for said in ("● ready", "requests/s", VIRTUAL, "1 ready", "MODEL_NOT_FOUND\u00a01"):
        assert said in ran.stdout


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "ctrl-c"])
def test_live_it_follows_what_happens_and_a_key_ends_it(virtual_server, key):
    with live(virtual_server.url) as terminal:
        terminal.see(b"No model is in memory")
        ask(virtual_server)
        terminal.see(NAME)
        terminal.press(key)
        assert terminal.code() == 0


def test_live_it_outlives_its_server(virtual_server):
    with live(virtual_server.url) as terminal:
        terminal.see(b"No model is in memory")
        virtual_server.stop()
        terminal.see(b"no server answers at")
        terminal.press(b"q")
        assert terminal.code() == 0


def test_what_is_no_server_or_wants_a_key_is_said_in_a_sentence(virtual_home):
    for typed in ("http://127.0.0.1:9", "127.0.0.1:9"):
        gone = once(typed)
        assert gone.returncode == 1
        assert "no server answers at http://127.0.0.1:9 (Connection refused); start one" in gone.stderr
    with serving(virtual_home, SHOAL_API_KEY="a key") as server:
        bare = once(server.url)
        assert (bare.returncode, "wants a key" in bare.stderr) == (1, True)
        assert once(server.url, SHOAL_API_KEY="a key").returncode == 0
