"""multilingual-e5-small, English and Swedish, beside sentence-transformers on the same files: the vectors, and how
well they retrieve through a server that was given the folder.
"""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from faq import ndcg_at_10, read_pairs

import shoal
from shoal.catalog.inspect import read_facts
from shoal.protocol.facts import Profile
from shoal.protocol.items import Item
from shoal.runtimes import Prepared, Runtime, open_runtime
from shoal.testing.server import Server, serving

pytestmark = pytest.mark.models

MODEL = "multilingual-e5-small"
SIDES = ("query", "passage")
RETRIEVES = {"en": 0.704, "sv": 0.691}
"""nDCG@10 on the 503 pairs, measured of these 4-bit weights."""
ODD = ["a", "fisk", "Åäö ÅÄÖ", "naïve café", "😀 and \u200b invisible", "日本語のテキスト", "fisk " * 600]


@pytest.fixture(scope="module")
def reference(me5):
    from sentence_transformers import SentenceTransformer

    # The files are in float16; what is asked of the reference is fp32.
    return SentenceTransformer(str(me5), device="cpu").float()


@pytest.fixture(scope="module")
def added(me5, tmp_path_factory) -> Iterator[Server]:
    """A server whose only model came by `shoal add FOLDER`."""
    home = tmp_path_factory.mktemp("home")
    environment = os.environ | {"SHOAL_HOME": str(home), "SHOAL_OFFLINE": "1"}
    command = [sys.executable, "-m", "shoal", "add", str(me5)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    with serving(home, "--pin", MODEL) as running:
        yield running


def some_texts(home: Path) -> list[str]:
    """A few dozen of every length, and odd ones."""
    picked = [text for language in RETRIEVES for side in read_pairs(home, language) for text in side[::45]]
    return ODD + picked


def vectors(runtime: Runtime, texts: list[str]) -> np.ndarray:
    batch = runtime.prepare([Item(text) for text in texts])
    assert all(isinstance(entry, Prepared) for entry in batch)
    parts = [runtime.run(batch[at : at + 8], 0).rows for at in range(0, len(batch), 8)]
    return np.stack([row["dense"] for part in parts for row in part])


@pytest.mark.parametrize(
    ("engine", "dtype", "least"),
    [("openvino", "bf16", 0.999), ("openvino", "fp32", 0.9999), ("onnx", "fp32", 0.9999)],
)
def test_texts_of_two_languages_have_the_vectors_of_the_reference(home, me5, reference, engine, dtype, least):
    texts = some_texts(home)
    runtime = open_runtime(me5, read_facts(me5, {}), Profile(runtime=engine, dtype=dtype))
    expected = reference.encode(texts, batch_size=8)
    order = random.Random(3).sample(range(len(texts)), len(texts))
    shuffled = vectors(runtime, [texts[i] for i in order])[np.argsort(order)]
    for found in (vectors(runtime, texts), shuffled):
        assert (found * expected).sum(axis=1).min() >= least


@pytest.mark.parametrize("language", RETRIEVES)
def test_retrieval_through_the_server_is_as_good_as_the_reference(home, added, reference, language):
    pairs = dict(zip(SIDES, read_pairs(home, language), strict=True))
    expected = [reference.encode(texts, prompt_name=side) for side, texts in pairs.items()]
    with shoal.Client(added.url) as client:
        served = [client.encode(MODEL, texts, prompt_name=side) for side, texts in pairs.items()]
    assert abs(ndcg_at_10(*expected) - RETRIEVES[language]) <= 0.005
    assert abs(ndcg_at_10(*served) - ndcg_at_10(*expected)) <= 0.005
