"""What every kind of test may ask for: stores with models in them, and real servers on top of them."""

import os
from pathlib import Path

import pytest

from names import BGE, MINILM, RERANKER, SPLADE, VIRTUAL, VIRTUAL_EVERY_KIND, VIRTUAL_RERANKER
from shoal.catalog.store import Store
from shoal.testing.server import serving


@pytest.fixture(scope="session")
def virtual_home(tmp_path_factory) -> Path:
    """A store with the stand-ins only: no weights, nothing fetched."""
    store = Store(tmp_path_factory.mktemp("virtual-home"))
    for name in (VIRTUAL, VIRTUAL_RERANKER):
        store.add(name)
    return store.home


@pytest.fixture
def fresh_virtual_home(tmp_path) -> Path:
    """The stand-ins again, with nothing measured of them yet."""
    store = Store(tmp_path / "home")
    for name in (VIRTUAL, VIRTUAL_RERANKER):
        store.add(name)
    return store.home


@pytest.fixture(scope="session")
def home(tmp_path_factory) -> Path:
    """A store with the real models of `make models`, and the stand-ins. Fetched once where it is not there."""
    store = Store(Path(os.environ["SHOAL_HOME"]) if "SHOAL_HOME" in os.environ else None)
    for name in (MINILM, RERANKER, BGE, SPLADE, VIRTUAL, VIRTUAL_RERANKER, VIRTUAL_EVERY_KIND):
        store.add(name)
    return store.home


@pytest.fixture(scope="session")
def server(home):
    """One server with the real models, shared by the tests that only call it."""
    with serving(home, "--pin", MINILM, "--pin", RERANKER) as running:
        yield running


@pytest.fixture
def virtual_server(virtual_home):
    """A server of the stand-ins, for one test alone."""
    with serving(virtual_home) as running:
        yield running
