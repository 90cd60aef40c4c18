"""Logits to scores, in double precision, where close ones do not tie."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.protocol.facts import Activation

Logits = NDArray[np.float64]


def activated(logits: Logits, activation: Activation, *, bounded: bool = False) -> Logits:
    """`logits` [n, labels] through the model's own activation; `bounded` into 0…1 whatever that is:
    the sigmoid of a single output, the softmax over several.
    """
    if bounded:
        activation = "sigmoid" if logits.shape[1] == 1 else "softmax"
    match activation:
        case "sigmoid":
            return _sigmoid(logits)
        case "softmax":
            return _softmax(logits)
    return logits


def _sigmoid(logits: Logits) -> Logits:
    # exp of a non-positive number only, so that no logit overflows.
    small = np.exp(-np.abs(logits))
    found: NDArray[Any] = np.where(logits >= 0, 1.0, small) / (1.0 + small)
    return found


def _softmax(logits: Logits) -> Logits:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    found: NDArray[Any] = powers / powers.sum(axis=1, keepdims=True)
    return found
