"""Real models from the store, and the reference libraries without a network."""

import os
from pathlib import Path

import pytest
from faq import read_pairs
from me5 import me5_folder

from shoal.catalog import Model
from shoal.catalog.store import Store

os.environ["HF_HUB_OFFLINE"] = "1"  # before the reference libraries are imported


@pytest.fixture(scope="session")
def minilm(home) -> Model:
    return Store(home).resolve("sentence-transformers/all-MiniLM-L6-v2")


@pytest.fixture(scope="session")
def bge(home) -> Model:
    return Store(home).resolve("BAAI/bge-small-en-v1.5")


@pytest.fixture(scope="session")
def reranker(home) -> Model:
    return Store(home).resolve("cross-encoder/ms-marco-MiniLM-L-12-v2")


@pytest.fixture(scope="session")
def faq(home) -> tuple[list[str], list[str]]:
    return read_pairs(home)


@pytest.fixture(scope="session")
def splade(home) -> Model:
    return Store(home).resolve("rasyosef/splade-tiny")


@pytest.fixture(scope="session")
def me5(home) -> Path:
    """The folder of multilingual-e5-small."""
    return me5_folder(home)
