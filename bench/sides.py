"""What is measured against one another: a server, or sentence-transformers in process, each loaded the same way.

A side is started, loaded, asked for vectors, frozen while another is measured, and ended. Knows no figure's bar.
"""

import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from shoal.lab.load import Request, Run, Target, closed
from tree import Tree
from worker import Worker

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
ROUTE = "/v1/embeddings"
READY_WITHIN_S = 300.0
PATIENCE_S = 60.0  # slow is no fault


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """So many connections, each asking for `at_once` of the texts at a time. `tokens` are those of each text."""

    name: str
    connections: int
    texts: Sequence[str]
    tokens: Sequence[int]
    at_once: int = 1


class Speed(msgspec.Struct, frozen=True):
    texts_per_second: float
    p50_s: float
    tokens_per_second: float


class Side(Protocol):
    name: str
    tree: Tree
    ready_s: float
    """From the start of the process to the first vector."""

    def load(self, load: Load, seconds: float) -> Speed: ...

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """Of length one, or near it."""
        ...

    def end(self) -> None: ...


class Server:
    """A process that speaks OpenAI's embeddings on `port`. Raises RuntimeError where it does not get ready."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], port: int, log: Path) -> None:
        self.name, self.port, self.log = name, port, log
        log.parent.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, env=environment, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent
            )
        self.tree = Tree(self.process.pid)
        self._wait(began + READY_WITHIN_S)
        self.ready_s = time.perf_counter() - began

    def load(self, load: Load, seconds: float) -> Speed:
        target = Target("127.0.0.1", self.port)
        run = closed(target, requests(load), load.connections, seconds, patience_s=PATIENCE_S)
        speed = speed_of(run, self.name)
        if load.connections > 1:
            return speed
        # Of few requests, what they took says more than how many were done when the time was over.
        rate = load.at_once * len(run.latencies) / sum(run.latencies)
        return Speed(rate, speed.p50_s, rate * sum(load.tokens) / len(load.tokens))

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        found: list[list[float]] = []
        for start in range(0, len(texts), 32):
            answer = post(self.port, ROUTE, {"model": MODEL, "input": texts[start : start + 32]})
            found += [entry["embedding"] for entry in sorted(answer["data"], key=lambda entry: entry["index"])]
        return found

    def end(self) -> None:
        self.tree.end()
        self.process.wait()

    def _wait(self, until: float) -> None:
        while time.perf_counter() < until:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(OSError, urllib.error.HTTPError):
                post(self.port, ROUTE, {"model": MODEL, "input": "hello world"})
                return
            time.sleep(0.02)
        self.end()
        raise RuntimeError(f"{self.name} is not ready:\n{self.log.read_text(errors='replace')[-3000:]}")


class InProcess:
    """sentence-transformers, called with as many texts as a server would have requests at once."""

    name = "st"

    def __init__(self, folder: Path, device: str) -> None:
        began = time.perf_counter()
        self._worker = Worker("st_worker.py", "encoder", folder, device)
        self.tree = Tree(self._worker.process.pid)
        self.vectors(["hello world"])
        self.ready_s = time.perf_counter() - began

    def load(self, load: Load, seconds: float) -> Speed:
        at_once = load.connections * load.at_once
        rate, median_s = self._worker.ask("load", texts=list(load.texts), at_once=at_once, seconds=seconds)
        return Speed(rate, median_s, rate * sum(load.tokens) / len(load.tokens))

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        found: list[list[float]] = self._worker.ask("vectors", texts=list(texts))
        return found

    def end(self) -> None:
        self.tree.thaw()
        self._worker.end()


def requests(load: Load, model: str = MODEL) -> list[Request]:
    """OpenAI's client asks for base64, and so do we."""
    made = []
    for start in range(0, len(load.texts), load.at_once):
        some, tokens = (values[start : start + load.at_once] for values in (load.texts, load.tokens))
        asked = some[0] if load.at_once == 1 else list(some)
        body = msgspec.json.encode({"model": model, "input": asked, "encoding_format": "base64"})
        made.append(Request(ROUTE, body, items=len(some), tokens=sum(tokens)))
    return made


def speed_of(run: Run, name: str) -> Speed:
    """Raises RuntimeError where a request failed, or none was answered: a server that refuses is not quick."""
    if run.errors or not run.done or not run.latencies:
        raise RuntimeError(f"{name} failed requests: {run.errors} {run.complaint}")
    return Speed(run.items_per_second, run.percentile(0.5), run.tokens_per_second)


def post(port: int, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())
