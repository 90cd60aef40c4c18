"""A profile that changes while a server runs: the model is loaded anew by it, and no request is lost."""

import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal.catalog.profiles import Kept, Profiles
from shoal.catalog.store import Store
from shoal.node import devices
from shoal.testing.checkpoints import tiny_encoder
from shoal.testing.server import serving

pytestmark = pytest.mark.models
NAME = "acme/tiny"
WITHIN_S = 60


class Traffic:
    """Requests one after another on each of four threads; what went wrong with any of them."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/v1/embeddings"
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(4)]
        self.wrong: list[Any] = []
        self.answered = 0

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        with httpx.Client(timeout=60) as client:
            while not self._ended.is_set():
                answer = client.post(self._url, json={"model": NAME, "input": ["fish", "small fish swim"]})
                self.answered += 1
                if answer.status_code != 200:
                    self.wrong.append(answer.text)


def described(url: str) -> dict[str, Any]:
    said: dict[str, Any] = httpx.get(f"{url}/v1/models/{NAME}").raise_for_status().json()
    return said


def soon(url: str, tolerance: float) -> dict[str, Any]:
    """What the server says of the model once it is loaded with that tolerance, or in the end."""
    until = time.monotonic() + WITHIN_S
    while True:
        said = described(url)
        if (said["tolerance"], said["loaded"]) == (tolerance, True) or time.monotonic() > until:
            return said


def test_a_running_server_takes_a_new_profile_up_under_load_and_loses_no_request(tmp_path: Path) -> None:
    tiny_encoder(tmp_path / "tiny")
    store = Store(tmp_path / "home")
    model = store.add(tmp_path / "tiny", name=NAME)
    profiles = Profiles(store.home, devices.kind())
    rule = devices.profile_for(model, profiles)
    kept = Kept(runtime=rule.runtime, dtype="fp32", tolerance=0.99991, by="a test")
    with serving(store.home, "--pin", NAME) as server:
        pids = server.runtime_pids()
        assert described(server.url)["tolerance"] == rule.tolerance
        with Traffic(server.url) as traffic:
            path = profiles.write(model, kept)
            said = soon(server.url, kept.tolerance)
            assert (said["dtype"], said["tolerance"]) == ("fp32", kept.tolerance)
            assert server.runtime_pids() != pids
            path.unlink()
            said = soon(server.url, rule.tolerance)
            assert (said["dtype"], said["tolerance"]) == (rule.dtype, rule.tolerance)
        assert traffic.wrong == []
        assert traffic.answered > 0
