"""Whether a line deserves another replica, and who may load one. Pure: numbers in, a decision out."""

from shoal.node.cost import Cost

TRIGGER_S = 0.05
TRIGGER_OF_TARGET = 0.5
"""A line whose jobs would wait longer than this is worth another replica (PULL.md)."""
SETTLED_S = 1.0
"""A burst that is over sooner is not worth more replicas, however fast they load."""


BUSY, SPARE = 0.7, 0.2
"""Shares of its devices' time: who is that busy wants relief, from somebody who is so much less busy."""


def predicted_wait(tokens: float, cost: Cost, batch_tokens: int, streams: int) -> float:
    """Seconds until `tokens` are computed, in full micro-batches on so many streams."""
    if not tokens:
        return 0.0
    batches = max(1.0, tokens / batch_tokens)
    return (batches * cost.a + cost.b * tokens) / max(1, streams)


def is_worth_a_load(wait_s: float, oldest_s: float, load_s: float, target_s: float) -> bool:
    """Whether one more replica would still find something to do.

    1. What waits is done in a moment: no.
    2. It takes longer than the load: yes.
    3. It has been waiting for as long as a load takes (or a second): this is no burst, yes.
    """
    if wait_s < TRIGGER_OF_TARGET * target_s:
        return False  # 1
    return wait_s >= load_s or oldest_s >= min(load_s, SETTLED_S)  # 2, 3


def would_relieve(waited_s: float, theirs: float, ours: float, target_s: float) -> bool:
    """Whether a node that is busy for a share `ours` of its time should hold a model too whose jobs lately waited
    so long for those that hold it, of which the least busy one is so for a share `theirs`.

    What waits of one model says little where a device is busy with many.
    """
    return waited_s >= TRIGGER_OF_TARGET * target_s and theirs >= BUSY and ours + SPARE <= theirs


def may_load(loading: int, devices: int) -> bool:
    """At most a tenth of the devices load for lines that others hold, so that the rest goes on working."""
    return loading < max(1, devices // 10)
