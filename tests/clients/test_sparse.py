"""A real sparse model through a running server, by sie-sdk and by TEI's route.

What the words weigh is what its publisher prints in the README of github.com/rasyosef/splade-tiny-msmarco.
"""

import numpy as np
import pytest
import sie_sdk
from tokenizers import Tokenizer

from names import SPLADE
from shoal.catalog.store import Store

pytestmark = [pytest.mark.clients, pytest.mark.models, pytest.mark.usefixtures("impatient_sdk")]

PUBLISHED = {
    "The weather is lovely today.": {"today": 2.5437, "lovely": 2.1207, "weather": 2.0432, "summers": 2.0364},
    "It's so sunny outside!": {"outside": 2.2668, "sunny": 2.1886, "cool": 1.8421, "so": 1.8327},
    "He drove to the stadium.": {"drove": 2.0860, "stadium": 2.0446, "he": 1.7063, "team": 1.4267},
}
TEXTS = list(PUBLISHED)


def heaviest(home, indices, values, count: int = 4) -> dict[str, float]:
    words = Tokenizer.from_file(str(Store(home).resolve(SPLADE).folder / "tokenizer.json"))
    best = np.argsort(-np.asarray(values, np.float64))[:count]
    return {words.id_to_token(int(indices[i])): float(values[i]) for i in best}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_sdk_gets_the_weights_that_the_publisher_prints_in_numpys_types(home, server, dtype):
    with sie_sdk.SIEClient(server.url, timeout_s=60, api_key="") as sdk:
        items = [{"text": text} for text in TEXTS]
        results = sdk.encode(SPLADE, items, output_types=["sparse"], output_dtype=np.dtype(dtype).name)
    for text, result in zip(TEXTS, results, strict=True):
        indices, values = result["sparse"]["indices"], result["sparse"]["values"]
        assert (indices.dtype, values.dtype, indices.shape) == (np.int32, dtype, values.shape)
        assert np.all(np.diff(indices) > 0)
        assert heaviest(home, indices, values) == pytest.approx(PUBLISHED[text], abs=2e-3)


def test_teis_embed_sparse_gives_the_weights_that_the_publisher_prints(home, http):
    answer = http.post("/embed_sparse", json={"inputs": TEXTS, "model": SPLADE})
    assert answer.status_code == 200, answer.text
    for text, entries in zip(TEXTS, answer.json(), strict=True):
        indices, values = zip(*((entry["index"], entry["value"]) for entry in entries), strict=True)
        assert heaviest(home, indices, values) == pytest.approx(PUBLISHED[text], abs=2e-3)
