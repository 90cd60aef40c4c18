"""A server that speaks S3 (moto's, in a process of its own), for tests of what is kept in buckets."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from shoal.testing.server import free_port

PAGE_KEYS = 40
"""A list comes in pages of so many, as S3's in pages of a thousand."""
_SERVE = """
import sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)
"""
"""One request after the other: moto in threads lets two create the same key, which S3 does not."""


class S3Server:
    """`environment` is what a process needs in its own to use it by s3:// URLs."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": "shoal",
            "AWS_SECRET_ACCESS_KEY": "of no account",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
        }

    def make_bucket(self, name: str) -> str:
        """Its URL for `--objects`."""
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        with urllib.request.urlopen(request, timeout=60):
            return f"s3://{name}"

    def is_up(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/moto-api/", timeout=60):
                return True
        except OSError:
            return False


@contextlib.contextmanager
def s3_server(within_s: float = 120.0) -> Iterator[S3Server]:
    """On a free port; what it holds is in memory. Raises RuntimeError, with its log, where it does not start."""
    port = free_port()
    server = S3Server(port)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", _SERVE, str(port)],
                stdout=output,
                stderr=output,
                env=os.environ | server.environment | {"MOTO_S3_DEFAULT_MAX_KEYS": str(PAGE_KEYS)},
            )
        try:
            until = time.monotonic() + within_s
            while not server.is_up():
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"the S3 server is not up:\n{log.read_text()[-4000:]}")
                time.sleep(0.05)
            yield server
        finally:
            process.kill()
            process.wait()
