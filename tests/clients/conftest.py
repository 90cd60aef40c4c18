"""Who asks the shared server: plain HTTP, our client; and what the models' own tokenizers say of a text.

Everything here is asked of one process, and, as slow tests, of a cluster: clients cannot tell them apart.
"""

from collections.abc import Callable, Iterator

import httpx
import pytest
from tokenizers import Tokenizer

import shoal
from names import MINILM, RERANKER
from shoal.catalog.store import Store
from shoal.testing.cluster import cluster
from shoal.testing.server import serving

PINNED = ["--pin", MINILM, "--pin", RERANKER]


@pytest.fixture(scope="session", params=["serve", pytest.param("cluster", marks=pytest.mark.slow)])
def server(request, home, tmp_path_factory):
    """With the real models, shared by the tests that only call it."""
    objects = ["--objects", str(tmp_path_factory.mktemp("objects"))]
    if request.param == "serve":
        with serving(home, *PINNED, *objects) as running:
            yield running
    else:
        with cluster(home, node_options=[*PINNED, *objects], gateway_options=objects) as running:
            yield running


@pytest.fixture(scope="session")
def http(server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60, headers={"accept": "application/json"}) as client:
        yield client


@pytest.fixture(scope="session")
def ours(server) -> Iterator[shoal.Client]:
    with shoal.Client(server.url, timeout_s=60) as client:
        yield client


@pytest.fixture(scope="session")
def words(home) -> list[str]:
    """Words that are one token each, in every model here: they share BERT's English vocabulary."""
    vocabulary = tokenizer(home, MINILM).get_vocab()
    assert vocabulary == tokenizer(home, RERANKER).get_vocab()
    plain = (word for word in sorted(vocabulary, key=vocabulary.get) if word.isalpha() and word.isascii())
    return [word for word in plain if len(word) > 3 and word.islower()][:5000]


@pytest.fixture(scope="session")
def tokens_of(home):
    """How many tokens a text, or a pair of texts, is for a model, markers included and nothing cut off."""
    known = {model: tokenizer(home, model) for model in (MINILM, RERANKER)}
    return lambda model, *texts: len(known[model].encode(*texts).ids)


@pytest.fixture(scope="session")
def tokenizer_of(home) -> Callable[[str], Tokenizer]:
    """A model's own, with nothing cut off."""
    return lambda model: tokenizer(home, model)


def tokenizer(home, model: str) -> Tokenizer:
    found = Tokenizer.from_file(str(Store(home).resolve(model).folder / "tokenizer.json"))
    found.no_truncation()
    found.no_padding()
    return found


@pytest.fixture
def impatient_sdk(monkeypatch):
    """The SDK asks again for a quarter of an hour where a connection breaks; a test should fail sooner."""
    for module in ("sie_sdk.client.sync", "sie_sdk.client.async_"):
        monkeypatch.setattr(f"{module}.DEFAULT_PROVISION_TIMEOUT_S", 60.0)
