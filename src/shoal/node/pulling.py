"""How much of a line a node asks the queue for, when, and what it gives back. Pure: numbers in, a decision out."""

import math

import msgspec

from shoal.node.cost import Cost

HELD_BYTES = 256 * 1024 * 1024
"""Text that may wait in a node's hands for one model; beyond it the jobs stay in the queue."""
LATE_SHARE, LATE_OF_TARGET = 0.25, 0.2
"""A window is late when it takes this much longer than predicted, as a share of the prediction or of the latency
target, whichever is more: 20 ms for a target of 100 (PULL.md)."""
MOST_OF_ONE = 0.75
MOST_JOBS = 2048
MOST_BATCHES = 64.0
"""In one window: where a token was learned to cost nothing, a good batch would have no end."""
MORE_JOBS = 1.5
"""How many more jobs are asked for than would fill a window, were they of the usual size."""


class Device(msgspec.Struct, frozen=True):
    """One replica of the line, and when it is predicted to have nothing left to do: 0 for one that is idle,
    infinity for one that is late, of which nobody knows.
    """

    streams: int
    due_at: float = 0.0


class Hand(msgspec.Struct, frozen=True):
    """What a node has of one line: `held_*` waits here, unsent; `devices` are its replicas, ready or to be."""

    devices: tuple[Device, ...]
    batch_items: int
    batch_tokens: int
    held_jobs: int = 0
    held_bytes: int = 0
    held_tokens: float = 0.0

    @property
    def streams(self) -> int:
        return sum(device.streams for device in self.devices)


class Pull(msgspec.Struct, frozen=True):
    """Ask for so many jobs and tokens (0: for none), or look again at `wait_until`."""

    jobs: int = 0
    tokens: float = 0.0
    wait_until: float | None = None


def alone(hand: Hand, cost: Cost) -> Pull:
    """What to ask for where no other node takes from the line: early, so that there is much to choose from.

    As many jobs as one window for every stream has items, whatever they hold: a request of ten thousand texts
    must not keep a single text from being seen, since only jobs in hand can share a window. A window is a good
    batch by the learned cost, within the runtime's own caps. Nothing more while `HELD_BYTES` wait here.
    """
    jobs = hand.streams * hand.batch_items - hand.held_jobs
    if jobs <= 0 or hand.held_bytes >= HELD_BYTES:
        return Pull()
    good = min(cost.good_batch_tokens(), 8.0 * hand.batch_tokens)
    return Pull(jobs, hand.streams * max(float(hand.batch_tokens), good))


def among_others(
    hand: Hand, cost: Cost, padding: float, job_tokens: float, target_s: float, lead_s: float, now: float
) -> Pull:
    """What to ask for where other nodes take from the same line: what a free device needs, just in time.

    `lead_s` passes between asking and computing. `padding` is how many tokens are computed for one that is useful,
    `job_tokens` how many a job usually has.

    1. Most of a window waits here already: nothing. One window ahead is enough, more would wait for us elsewhere
       idle, and for little more it is not worth asking.
    2. No device will be free before an answer could be here: ask when one will; if all are late, when one is not.
    3. A window for each that will, less what waits here.
    """
    window = min(window_tokens(cost, padding, target_s), MOST_BATCHES * hand.batch_tokens)
    by = now + lead_s
    free = [device for device in hand.devices if device.due_at <= by]
    if hand.held_tokens >= MOST_OF_ONE * window * max(1, sum(device.streams for device in free)):
        return Pull()  # 1
    if not free:
        first = min(device.due_at for device in hand.devices)
        return Pull(wait_until=first - lead_s if math.isfinite(first) else None)  # 2
    tokens = window * sum(device.streams for device in free) - hand.held_tokens
    jobs = math.ceil(MORE_JOBS * tokens / max(1.0, job_tokens))
    return Pull(min(MOST_JOBS, jobs), tokens)  # 3


def window_tokens(cost: Cost, padding: float, target_s: float) -> float:
    """Useful tokens of a good batch: 12 times a/b, or what runs in half of the latency target if that is less; but
    not less than a/b: a device so slow that it cannot keep the target would otherwise pay its fixed price for each
    text alone, and be slower still."""
    good = cost.good_batch_tokens()
    in_time = max(cost.a, target_s / 2 - cost.a) / cost.b if cost.b > 0 else good
    return max(1.0, min(good, in_time) / padding)


def late_at(due_at: float, predicted_s: float, target_s: float) -> float:
    """From when on a window that was to take `predicted_s` and end at `due_at` keeps others waiting."""
    return due_at + max(LATE_OF_TARGET * target_s, LATE_SHARE * predicted_s)
