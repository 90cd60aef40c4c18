"""No telemetry: what the engines would report home is never even prepared."""

import subprocess
import sys

import httpx
import pytest

from names import MINILM, RERANKER
from shoal.testing.server import serving


@pytest.mark.models
def test_neither_serving_nor_the_doctor_leaves_an_engine_a_way_to_report(home, tmp_path):
    """Both engines keep an identity, and a queue of what they would send, in the user's folders."""
    with serving(home, HOME=str(tmp_path)) as server:
        body = {"input": "hello", "model": MINILM}
        assert httpx.post(f"{server.url}/v1/embeddings", json=body, timeout=60).status_code == 200
        body = {"query": "a", "documents": ["b"], "model": RERANKER}
        assert httpx.post(f"{server.url}/v1/rerank", json=body, timeout=60).status_code == 200
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-m", "shoal", "doctor"], env=environment, capture_output=True, check=False)
    left = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")]
    assert not [path for path in left if "intel" in path.lower() or "microsoft" in path.lower()], left
