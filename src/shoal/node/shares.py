"""Whether a large request is taken apart, and into which parts. Pure: sizes in, indices out."""

import math
from collections.abc import Sequence

from shoal.node.cost import Cost

WORTH_S = 0.05
"""A request that takes longer is taken apart even if no other node is idle: whoever is free first takes a part."""
LEAST_PARTS = 2


def parts_of(
    tokens: Sequence[float], cost: Cost, batch_tokens: int, streams: int, waiting: int, others: int
) -> list[list[int]]:
    """The parts to give away, as indices into `tokens` (predicted, one an item); [] where all is computed here.

    `waiting` of the `others`, the nodes that have the model besides this one, have nothing to do.

    1. Nobody else has the model, or it is less than two good batches: no.
    2. Nobody waits, and it takes but a moment here: no.
    3. Parts of about one good batch each, alike in length, as many for each node as for any other.
    4. This node keeps its share, the longest texts, and begins at once; parts that nobody takes come to it too.
    """
    total = sum(tokens)
    good = min(cost.good_batch_tokens(), float(batch_tokens))
    if not others or total < LEAST_PARTS * good or len(tokens) < LEAST_PARTS:
        return []  # 1
    batches = math.ceil(total / good)
    seconds = (batches * cost.a + total * cost.b) / max(1, streams)
    if not waiting and seconds < WORTH_S:
        return []  # 2
    takers = 1 + others
    count = min(len(tokens), takers * math.ceil(batches / takers))
    order = sorted(range(len(tokens)), key=tokens.__getitem__)
    parts = _cut(order, tokens, total / count)  # 3
    kept = max(1, round(len(parts) / takers))
    return parts[:-kept]  # 4


def _cut(order: Sequence[int], tokens: Sequence[float], share: float) -> list[list[int]]:
    parts: list[list[int]] = []
    part: list[int] = []
    passed = held = 0.0
    for index in order:
        if part and held + tokens[index] / 2 > share * (len(parts) + 1) - passed:
            parts.append(part)
            passed += held
            part, held = [], 0.0
        part.append(index)
        held += tokens[index]
    parts.append(part)
    return parts
