"""The models of bench/road.py, in a store of their own under .cache/bench, so that none stays in the user's."""

import subprocess
import sys
from pathlib import Path

from bars import RESULTS
from shoal.catalog import Card, Virtual
from shoal.catalog.store import Store
from sides import MODEL

MINILM, ENCODER, RERANKER = "bench/minilm", "bench/random-encoder", "bench/random-reranker"
VIRTUAL = "bench/virtual-500k"
TOKENS_PER_SECOND = 500_000
VIRTUAL_CARD = Card(
    name=VIRTUAL,
    source=Virtual(seconds=0.0015, seconds_per_token=1 / TOKENS_PER_SECOND),
    facts={"tasks": ["encode"], "family": "virtual", "max_tokens": 512, "dims": 384, "normalize": True},
)


def bench_store() -> Store:
    """MiniLM, an encoder and a cross-encoder with random weights, and the virtual device."""
    store, minilm = Store(RESULTS / "home"), Store().add(MODEL).folder
    folder = RESULTS / "random-models"
    if not folder.exists():
        make_random_models(folder, minilm)
    store.add(VIRTUAL_CARD)
    for name, path in ((MINILM, minilm), (ENCODER, folder / "encoder"), (RERANKER, folder / "reranker")):
        store.add(path, name=name)
    return store


def make_random_models(folder: Path, tokenizer: Path) -> None:
    making = folder.with_suffix(".making")
    script = Path(__file__).parent / "random_models.py"
    subprocess.run([sys.executable, str(script), str(making), str(tokenizer)], check=True, capture_output=True)
    making.rename(folder)
