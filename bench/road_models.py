"""The models of bench/road.py, in a store of their own under .cache/bench, so that none stays in the user's."""

import subprocess
import sys
from pathlib import Path

from bars import RESULTS
from shoal.catalog import Card, Model, Virtual
from shoal.catalog.store import Store
from sides import MODEL

MINILM, ENCODER = "bench/minilm", "bench/random-encoder"
RERANKER, TRAINED = "bench/reranker", "cross-encoder/ms-marco-MiniLM-L-12-v2"
VIRTUAL = "bench/virtual-500k"
TOKENS_PER_SECOND = 500_000
VIRTUAL_CARD = Card(
    name=VIRTUAL,
    source=Virtual(seconds=0.0015, seconds_per_token=1 / TOKENS_PER_SECOND),
    facts={"tasks": ["encode"], "family": "virtual", "max_tokens": 512, "dims": 384, "normalize": True},
)


def bench_store() -> Store:
    """MiniLM, an encoder with random weights, and the virtual device."""
    store, minilm = Store(RESULTS / "home"), Store().add(MODEL).folder
    folder = RESULTS / "random-models"
    if not folder.exists():
        make_random_models(folder, minilm)
    store.add(VIRTUAL_CARD)
    for name, path in ((MINILM, minilm), (ENCODER, folder / "encoder")):
        store.add(path, name=name)
    return store


def add_reranker(store: Store) -> Model:
    """A trained cross-encoder of MiniLM-L12's shape. Random weights would cost the same, but find all documents
    nearly alike, so that no rounding whatever keeps their order."""
    folder = RESULTS / "reranker"
    if not folder.exists():
        making = folder.with_suffix(".making")
        run_script("dequantised.py", Store().add(TRAINED).folder, making)
        making.rename(folder)
    return store.add(folder, name=RERANKER)


def make_random_models(folder: Path, tokenizer: Path) -> None:
    making = folder.with_suffix(".making")
    run_script("random_models.py", making, tokenizer)
    making.rename(folder)


def run_script(name: str, *folders: Path) -> None:
    script = Path(__file__).parent / name
    subprocess.run([sys.executable, str(script), *map(str, folders)], check=True, capture_output=True)
