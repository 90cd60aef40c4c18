"""A script of this folder in a process of its own, asked by lines of JSON, so that it takes nothing from the load.

The script calls `answer` with one function a question; the bench asks by `Worker.ask`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
QUIET = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}


class Worker:
    def __init__(self, script: str, *arguments: object, **variables: str) -> None:
        """`variables` are added to the environment."""
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / script), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | QUIET | variables,
        )

    def ask(self, question: str, **arguments: Any) -> Any:
        """Raises RuntimeError where the process has ended; why stands on stderr."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([question, arguments]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args!r} ended with {self.process.wait()}")
        return json.loads(line)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def answer(**questions: Callable[..., Any]) -> None:
    """One line for each line, until there are no more. Whatever else is printed goes to stderr."""
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        question, arguments = json.loads(line)
        out.write(json.dumps(questions[question](**arguments)) + "\n")
        out.flush()
