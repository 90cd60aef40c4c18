"""How much of a line a node asks the queue for, and when. Pure: numbers in, a decision out."""

import msgspec

HELD_BYTES = 256 * 1024 * 1024
"""Text that may wait in a node's hands for one model; beyond it the jobs stay in the queue."""


class Hand(msgspec.Struct, frozen=True):
    """What a node has of one line. `streams` of all its replicas together; `held_*` waits here, unsent."""

    streams: int
    batch_items: int
    batch_tokens: int
    held_jobs: int = 0
    held_bytes: int = 0
    held_tokens: float = 0.0


def pull_size(hand: Hand, good_batch_tokens: float) -> tuple[int, float]:
    """Jobs and tokens worth asking the queue for, (0, 0) for none.

    As many jobs as one window for every stream has items, whatever they hold: a request of ten thousand texts
    must not keep a single text from being seen, since only jobs in hand can share a window. A window is a good
    batch by the learned cost, within the runtime's own caps. Nothing more while `HELD_BYTES` wait here.
    """
    jobs = hand.streams * hand.batch_items - hand.held_jobs
    if jobs <= 0 or hand.held_bytes >= HELD_BYTES:
        return 0, 0.0
    return jobs, hand.streams * max(hand.batch_tokens, min(good_batch_tokens, 8 * hand.batch_tokens))
