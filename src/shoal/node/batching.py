"""How much goes to a runtime, and when. Pure: numbers in, a decision out."""

import math

import msgspec

LINGER_S = 0.001
APART_S, MOST_APART_S = 0.002, 0.01
"""Between windows that no stream is waiting for lies a quarter of what the runtime is predicted to be busy with,
within these: each costs a frame, a wake-up and a turn of the tokeniser, however few texts it has."""


class Load(msgspec.Struct, frozen=True):
    """A replica at one moment. `backlog` is in micro-batches' worth, those that run counted whole; `waiting_*` is
    what the node could send.

    `linger_until` is a clock reading up to which clients that were just answered are likely to come back;
    `sent_at` is when the last window went, `due_at` when all that went is predicted to be done.
    """

    streams: int
    batch_items: int
    batch_tokens: int
    backlog: float
    waiting_items: int
    waiting_tokens: float
    linger_until: float = 0.0
    sent_at: float = 0.0
    due_at: float = 0.0


class Decision(msgspec.Struct, frozen=True):
    """Send about `batches` micro-batches' worth now (0: nothing), or look again at `wait_until`."""

    batches: float = 0.0
    wait_until: float | None = None


def next_window(load: Load, now: float) -> Decision:
    """What to hand over, so that the runtime has a micro-batch for each stream to choose from besides those that
    run: of more texts it cuts micro-batches more alike in length.

    1. Nothing waits, or the runtime has that much: nothing.
    2. A full micro-batch waits: as much as there is room for.
    3. A stream is idle: all that waits; but after a burst of answers only once the burst's clients have had a
       moment to come back.
    4. All are busy: the little that waits is sent ahead, but not text by text.
    """
    room = 2 * load.streams - load.backlog
    if load.waiting_items == 0 or room <= 0:
        return Decision()  # 1
    full = load.waiting_items >= load.batch_items or load.waiting_tokens >= load.batch_tokens
    if full:
        return Decision(batches=room)  # 2
    apart = min(MOST_APART_S, max(APART_S, (load.due_at - now) / 4))
    until = load.linger_until if load.backlog < load.streams else load.sent_at + apart  # 3, 4
    return Decision(wait_until=until) if now < until else Decision(batches=room)


def share(items: int, tokens: float, takers: int) -> tuple[int, float]:
    """What one of `takers` idle devices leaves the others: all are to be busy, and end together."""
    return math.ceil(items / takers), math.ceil(tokens / takers)
