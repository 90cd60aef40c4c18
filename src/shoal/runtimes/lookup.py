"""Queries of inference-free sparse models, put before any runtime: their terms' weights are looked up in a table
and no network runs (arXiv:2411.04403).
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shoal.families import Prepared
from shoal.families.finish import Row
from shoal.families.tokenize import load_tokenizer
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts, Sparse
from shoal.protocol.items import Item
from shoal.protocol.tensors import Array
from shoal.runtimes import Adapting, Ran, Read, Runtime


class LookUp:
    """Has the runtime that it stands before compute the documents."""

    def __init__(self, runtime: Runtime, folder: Path, facts: Facts) -> None:
        """Raises ModelLoadFailed."""
        if facts.sparse is None or facts.kinds != ("sparse",):
            raise ModelLoadFailed("a model whose queries are looked up gives sparse vectors and no others")
        self.profile = runtime.profile
        self._runtime = runtime
        self._table = read_table(folder, facts.sparse)
        if isinstance(runtime, Adapting):  # documents are adapted; queries are of no network
            self.take_adapter, self.drop_adapter = runtime.take_adapter, runtime.drop_adapter

    def prepare(self, items: Sequence[Item]) -> list[Read]:
        return self._runtime.prepare(items)

    def run(self, batch: Sequence[Prepared], slot: int) -> Ran:
        documents = [prepared for prepared in batch if not prepared.item.is_query]
        ran = self._runtime.run(documents, slot) if documents else Ran([], 0)
        rows = iter(ran.rows)
        return Ran([self._query(p) if p.item.is_query else next(rows) for p in batch], ran.tokens, ran.seconds)

    def _query(self, prepared: Prepared) -> Row:
        """Of every term that occurs its weight, however often it does."""
        found = np.unique(np.array(prepared.ids, np.int32))
        weights = self._table[found]
        return {"sparse.indices": found[weights > 0], "sparse.values": weights[weights > 0]}


def read_table(folder: Path, sparse: Sparse) -> Array:
    """[vocabulary] fp32, of JSON that gives tokens their weights. Raises ModelLoadFailed."""
    path = folder / sparse.table
    tokenizer = load_tokenizer(folder)
    # Ids may have gaps: there are as many weights as the greatest says, not as there are tokens.
    weights = np.zeros(max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1, np.float32)
    try:
        for token, weight in json.loads(path.read_bytes()).items():
            place = tokenizer.token_to_id(token)
            if place is not None:
                weights[place] = weight
    except (OSError, ValueError, TypeError, AttributeError) as e:
        raise ModelLoadFailed(f"cannot read {path.name}, the weights of a query's terms: {e}") from e
    if not np.isfinite(weights).all():
        raise ModelLoadFailed(f"{path.name} has weights that are no finite numbers")
    return weights
