"""From a masked language model's states to weights of words: the product with the vocabulary, outside any graph.

A logit for each word at each token is more than all other numbers of a batch, and engines keep buffers for every
shape they have seen. Here it is some words at a time, and the vocabulary's table stays in its file.
"""

from collections.abc import Sequence

import numpy as np

from shoal.families import Prepared, Words
from shoal.protocol.facts import Sparse
from shoal.protocol.tensors import Array

_WORDS_AT_ONCE = 4096


class Vocabulary:
    def __init__(self, words: Words, sparse: Sparse) -> None:
        self._weight, self._bias = words.weight, words.bias
        self._sparse = sparse

    def weights(self, states: Array, batch: Sequence[Prepared]) -> Array:
        """The head's states [tokens, width], one text after another → [texts, vocabulary], see `pool_logits`."""
        ends = np.cumsum([prepared.tokens for prepared in batch])
        texts = [slice(end - p.tokens, end - p.unseen) for p, end in zip(batch, ends, strict=True)]
        found = np.empty((len(batch), len(self._weight)), np.float32)
        for start in range(0, len(self._weight), _WORDS_AT_ONCE):
            part = slice(start, start + _WORDS_AT_ONCE)
            logits = states[: ends[-1]] @ self._weight[part].T
            bias = None if self._bias is None else self._bias[part]
            for i, text in enumerate(texts):
                found[i, part] = pool_logits(logits[text], bias, self._sparse)
        return found


def pool_logits(logits: Array, bias: Array | None, sparse: Sparse) -> Array:
    """logits [tokens, words] of one text, bias [words] → weights [words]; those of a maximum still without their
    log, which is needed only of the few above 0."""
    if sparse.pooling == "max":
        greatest: Array = logits.max(axis=0)
        greatest = np.maximum(greatest if bias is None else greatest + bias, 0)
        return greatest
    weights = np.maximum(logits if bias is None else logits + bias, 0)
    for _ in range(sparse.activation.count("log1p")):
        weights = np.log1p(weights)
    summed: Array = weights.sum(axis=0, dtype=np.float32)
    return summed
