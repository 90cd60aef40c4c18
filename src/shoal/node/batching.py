"""How much goes to a runtime, and when. Pure: numbers in, a decision out."""

import msgspec

LINGER_S = 0.001
HELD_BYTES = 256 * 1024 * 1024
"""Text that may wait in a node's hands for one model; beyond it the jobs stay in the queue."""


class Load(msgspec.Struct, frozen=True):
    """A replica at one moment. `backlog` is in micro-batches, `waiting_*` is what the node could send.

    `linger_until` is a clock reading up to which clients that were just answered are likely to come back.
    """

    streams: int
    batch_items: int
    batch_tokens: int
    backlog: int
    waiting_jobs: int
    waiting_items: int
    waiting_bytes: int
    waiting_tokens: float
    linger_until: float = 0.0


class Decision(msgspec.Struct, frozen=True):
    """Send about `batches` micro-batches' worth now (0: nothing), or look again at `wait_until`."""

    batches: int = 0
    wait_until: float | None = None


def next_window(load: Load, now: float) -> Decision:
    """What to hand over.

    1. Nothing waits: nothing.
    2. A stream is idle or about to be (backlog below the streams): all that waits, up to one micro-batch a
       free stream, and one ahead if a full one is left over; but after a burst of answers, and if it is
       less than a full micro-batch, only once the burst's clients have had a moment to come back.
    3. Streams busy, none ahead: one ahead, only if it is a full micro-batch (a thin one prefetched now
       would have been a full one later).
    4. Otherwise nothing.
    """
    if load.waiting_items == 0:
        return Decision()  # 1
    full = load.waiting_items >= load.batch_items or load.waiting_tokens >= load.batch_tokens
    free = load.streams - load.backlog
    if free > 0:  # 2
        if not full and now < load.linger_until:
            return Decision(wait_until=load.linger_until)
        return Decision(batches=free + 1 if full else free)
    if free == 0 and full:  # 3
        return Decision(batches=1)
    return Decision()  # 4


def pull_size(load: Load, good_batch_tokens: float) -> tuple[int, float]:
    """Jobs and tokens worth asking the queue for, (0, 0) for none.

    As many jobs as one window for every stream has items, whatever they hold: a request of ten thousand texts
    must not keep a single text from being seen, since only jobs in hand can share a window. A window is a good
    batch by the learned cost, within the runtime's own caps. Nothing more while `HELD_BYTES` wait here.
    """
    jobs = load.streams * load.batch_items - load.waiting_jobs
    if jobs <= 0 or load.waiting_bytes >= HELD_BYTES:
        return 0, 0.0
    return jobs, load.streams * max(load.batch_tokens, min(good_batch_tokens, 8 * load.batch_tokens))
