"""What sparse vectors need no network for, put before any runtime: an empty text has none, and a query of an
inference-free model gets the weights of its terms from a table (arXiv:2411.04403).
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shoal.families import Prepared
from shoal.families.finish import Row
from shoal.families.tokenize import load_tokenizer
from shoal.families.weights import Checkpoint
from shoal.protocol.errors import ModelLoadFailed, ShoalError
from shoal.protocol.facts import Facts, Sparse
from shoal.protocol.items import Item
from shoal.protocol.tensors import Array
from shoal.runtimes import Ran, Runtime


class SparseRuntime:
    def __init__(self, inner: Runtime, folder: Path, facts: Facts) -> None:
        """Raises ModelLoadFailed."""
        self._inner = inner
        self.profile = inner.profile
        self._table: Array | None = None
        if facts.sparse is not None and facts.sparse.queries == "table":
            if facts.kinds != ("sparse",):
                raise ModelLoadFailed("a model whose queries are looked up gives sparse vectors and no others")
            self._table = read_table(folder, facts.sparse)

    def prepare(self, items: Sequence[Item]) -> list[Prepared | ShoalError]:
        return self._inner.prepare(items)

    def run(self, batch: Sequence[Prepared], stream: int) -> Ran:
        computed = [prepared for prepared in batch if not self._is_known(prepared)]
        ran = self._inner.run(computed, stream) if computed else Ran([], 0)
        rows = iter(ran.rows)
        return Ran([self._known(p) if self._is_known(p) else next(rows) for p in batch], ran.tokens)

    def _is_known(self, prepared: Prepared) -> bool:
        return not prepared.ids or (self._table is not None and bool(prepared.item.is_query))

    def _known(self, prepared: Prepared) -> Row:
        """Of every term that occurs its weight, however often it does."""
        found = np.unique(np.array(prepared.ids, np.int32))
        weights = np.zeros(len(found), np.float32) if self._table is None else self._table[found]
        return {"sparse.indices": found[weights > 0], "sparse.values": weights[weights > 0]}


def read_table(folder: Path, sparse: Sparse) -> Array:
    """[vocabulary] fp32: JSON of token to weight, or the `weight` of a .safetensors file. ModelLoadFailed."""
    path = folder / sparse.table
    tokenizer = load_tokenizer(folder)
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    if path.suffix == ".safetensors":
        return Checkpoint(path.parent).weight("weight", size)
    weights = np.zeros(size, np.float32)
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
