"""MaxSim, the score of late interaction: each token of a query finds its best match among a document's tokens.

score = Σ over query tokens of max over document tokens of their dot product (ColBERT, arXiv:2004.12832), in fp32.
Vectors may come from the model or from the client; knows arrays, not how they were made.
"""

import numpy as np

from shoal.protocol.errors import Fault, InvalidInput
from shoal.protocol.items import Output
from shoal.protocol.tensors import Array, Tensor


def ready(vectors: Array, dims: int) -> Output | Fault:
    """A client's vectors [tokens, dims] as the model would have given them, or what is wrong with them."""
    if vectors.ndim != 2 or vectors.shape[0] < 1:
        shape = " by ".join(map(str, vectors.shape)) or "a single number"
        return InvalidInput(f"multivector has the shape {shape}; it is tokens by dims, at least one token").fault()
    if vectors.shape[1] != dims:
        return InvalidInput(f"multivector has {vectors.shape[1]} dims a token; this model has {dims}").fault()
    with np.errstate(over="ignore"):
        rows = vectors.astype("<f4")
    if not np.isfinite(rows).all():
        return InvalidInput("multivector holds a value that is not finite as float32").fault()
    return Output({"multivector": Tensor.of(rows)})


def maxsim(query: Array, document: Array) -> float:
    """`query` [n, dims] and `document` [m, dims], n and m at least 1. Not finite where the products are not."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float((query @ document.T).max(axis=1).sum(dtype=np.float64))
