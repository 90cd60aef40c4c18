"""`make run`: two real models, a server on loopback, one example asked of it; then it stays up until Ctrl-C.

It does what `shoal add`, `shoal serve` and `shoal.Client` do, and shows how; nothing depends on it.
"""

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console

import shoal
from shoal.catalog.store import Store
from shoal.protocol.errors import ShoalError

ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
RERANKER = "cross-encoder/ms-marco-MiniLM-L-12-v2"
QUERY = "How do I keep bread fresh?"
TEXTS = [
    "The bakery on the corner opens at six.",
    "Bread stays fresh for days in a linen bag or a wooden box.",
    "Sourdough starter wants to be fed once a day.",
]
READY_WITHIN_S = 180.0

KEY = os.environ.get("SHOAL_API_KEY", "").partition(",")[0].strip()
"""`shoal serve` reads the same variable, and then wants a key with every request."""
console = Console(highlight=False, markup=False, soft_wrap=True)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    port = free_port()
    try:
        fetch_models()
        with serving(port) as server:
            show_answers(f"http://127.0.0.1:{port}", server)
            sys.exit(f"the server ended by itself, with {server.wait()}; why stands above")
    except ShoalError as e:
        sys.exit(f"error: {e.message}")
    except KeyboardInterrupt:
        return


def free_port() -> int:
    """The port of SHOAL_PORT, else 8080. Exits with a sentence where it cannot be had."""
    said = os.environ.get("SHOAL_PORT") or "8080"
    if not said.isdigit() or not 0 < int(said) < 65536:
        sys.exit(f"SHOAL_PORT is {said!r}; it is a port's number, 1 to 65535")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", int(said)))
        except OSError as e:
            sys.exit(
                f"port {said} on 127.0.0.1 cannot be used: {e.strerror}. Stop what listens there, or choose "
                "another port: SHOAL_PORT=8090 make run"
            )
    return int(said)


def fetch_models() -> None:
    here = Store().models()
    for name in (ENCODER, RERANKER):
        if name not in here:
            console.print(f"Fetching {name} (once)", style="bold")
            if subprocess.run([sys.executable, "-m", "shoal", "add", name], check=False).returncode:
                sys.exit(f"{name} could not be fetched; `make run` goes on from here when you try again")


@contextlib.contextmanager
def serving(port: int) -> "Iterator[subprocess.Popen[bytes]]":
    """A server, drained at the end. It has a process group of its own, so that Ctrl-C reaches it through us
    alone: a second signal, the terminal's, would end it before it has drained."""
    command = [sys.executable, "-m", "shoal", "serve", "--port", str(port), "--pin", ENCODER, "--pin", RERANKER]
    server = subprocess.Popen(command, process_group=0)
    try:
        yield server
    finally:
        while server.poll() is None:
            with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C again ends it at once
                server.terminate()
                server.wait()


def show_answers(url: str, server: "subprocess.Popen[bytes]") -> None:
    """Ask for one example, and print the answers beside the lines that ask the same."""
    with shoal.Client(url, KEY or None, connect_retry_s=0) as client:
        wait_ready(client, server)
        vectors = client.encode(ENCODER, [QUERY, *TEXTS])
        ranking = client.score(RERANKER, QUERY, TEXTS)

    console.rule("encode", align="left")
    console.print(f"{QUERY!r} is now a vector of {vectors.shape[1]} numbers: {vectors[0, :5].round(4)} …")
    for text, vector in zip(TEXTS, vectors[1:], strict=True):
        console.print(f"  cosine {vector @ vectors[0]:6.3f}  {text}")
    say_code("The same vector, by curl:", curl(url, f"/v1/encode/{ENCODER}", {"items": [QUERY]}))

    console.rule("score", align="left")
    for entry in ranking:
        console.print(f"  score {entry.score:7.3f}  {entry.document}")
    say_code("The same scores, by curl:", curl(url, f"/v1/score/{RERANKER}", {"query": QUERY, "items": TEXTS}))

    console.rule("from Python", align="left")
    say_code("Both, in .venv/bin/python:", python(url))
    console.rule()
    console.print(f"Shoal is up; {url}/ shows its state. Ctrl-C stops it.", style="bold")


def wait_ready(client: shoal.Client, server: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + READY_WITHIN_S
    while not client.ready():
        if server.poll() is not None:
            sys.exit(f"the server did not start (it ended with {server.returncode}); why stands above")
        if why := load_failure(client):
            sys.exit(f"a model could not be loaded: {why}")
        if time.monotonic() > until:
            sys.exit(f"the models were not loaded within {READY_WITHIN_S:g} s")
        time.sleep(0.05)


def load_failure(client: shoal.Client) -> str:
    try:
        return next((m["last_error"]["message"] for m in client.models() if m["last_error"]), "")
    except ConnectionError:  # not listening yet
        return ""


def say_code(title: str, code: str) -> None:
    console.print(f"\n{title}\n", style="dim")
    console.print(code, end="\n\n", style="cyan")


def curl(url: str, path: str, body: dict[str, Any]) -> str:
    headers = ["-H 'content-type: application/json'", "-H 'accept: application/json'"]
    if KEY:
        headers.append('-H "authorization: Bearer $SHOAL_API_KEY"')
    return f"curl {url}{path} \\\n  {' '.join(headers)} \\\n  -d {shlex.quote(json.dumps(body))}"


def python(url: str) -> str:
    key = ', os.environ["SHOAL_API_KEY"]' if KEY else ""
    texts = "".join(f"    {json.dumps(text)},\n" for text in TEXTS)
    return (
        f"{'import os; ' if KEY else ''}import shoal\n"
        f'client = shoal.Client("{url}"{key})\n'
        f'query = "{QUERY}"\n'
        f"texts = [\n{texts}]\n"
        f'print(client.encode("{ENCODER}", query))\n'
        f'for entry in client.score("{RERANKER}", query, texts): print(entry.score, entry.document)'
    )


if __name__ == "__main__":
    main()
