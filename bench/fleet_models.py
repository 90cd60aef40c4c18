"""The adapters of bench/fleet.py: random factors for every linear of MiniLM's layers, in the bench's store."""

from pathlib import Path

from bars import RESULTS
from road_models import MINILM
from shoal.catalog import Model
from shoal.catalog.store import Store
from shoal.testing.adapters import write_adapter
from sides import MODEL

FOLDERS = RESULTS / "adapters"
PUSHED_RANK = 12
"""With every linear of MiniLM, about 2 MB."""


def fleet_store() -> Store:
    """With MiniLM alone: no bench finds another's models."""
    store = Store(RESULTS / "fleet-home")
    store.add(Store().add(MODEL).folder, name=MINILM)
    return store


def adapter_folder(base: Path, rank: int, number: int) -> Path:
    folder = FOLDERS / f"r{rank}-{number}"
    if not folder.exists():
        write_adapter(folder, base, rank=rank, seed=1000 * rank + number)
    return folder


def adapters_of_rank(store: Store, rank: int, count: int) -> list[Model]:
    base = store.resolve(MINILM).folder
    folders = [adapter_folder(base, rank, number) for number in range(count)]
    return [store.add(folder, name=f"bench/{folder.name}", base=MINILM) for folder in folders]
