"""What this node did for each line lately, in numbers: for its status. State and sums, no clock of its own."""

from collections import deque
from collections.abc import Mapping

import msgspec

from shoal.protocol.facts import Profile
from shoal.protocol.frames import Measured
from shoal.protocol.status import LineStatus

WINDOW_S = 5.0
TOLD_FOR_S = 60.0
"""After its last work a line is told of for so long: of thousands that once had some, those at work are news."""
_SLOT_S = 1.0


class _Slot(msgspec.Struct):
    """One second. `fill` is summed over its micro-batches, `seconds` over streams, `waited` over jobs `taken`."""

    since: float
    batches: int = 0
    items: int = 0
    tokens: int = 0
    useful: int = 0
    seconds: float = 0.0
    fill: float = 0.0
    taken: int = 0
    waited: float = 0.0


class _Line:
    def __init__(self, now: float) -> None:
        self.since = self.last = now
        self.streams = 1
        self.slots: deque[_Slot] = deque()
        self.given_back = self.redelivered = self.claimed_loads = 0

    def slot(self, now: float) -> _Slot:
        """Of this second; those that no status will count any more are dropped."""
        if not self.slots or now - self.slots[-1].since >= _SLOT_S:
            self.slots.append(_Slot(now))
            while now - self.slots[0].since > WINDOW_S:
                self.slots.popleft()
        return self.slots[-1]


class Tally:
    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def ran(self, line: str, profile: Profile, measured: Measured, useful_tokens: int, now: float) -> None:
        """One micro-batch; `useful_tokens` of it were not padding."""
        known = self._line(line, now)
        known.streams = profile.streams
        slot = known.slot(now)
        slot.batches += 1
        slot.items += measured.items
        slot.tokens += measured.tokens
        slot.useful += useful_tokens
        slot.seconds += measured.seconds
        slot.fill += min(1.0, profile.batches(measured.items, measured.tokens))

    def took(self, line: str, waited_s: float, now: float) -> None:
        """One job came from the queue, where it had been for so long."""
        slot = self._line(line, now).slot(now)
        slot.taken += 1
        slot.waited += waited_s

    def gave_back(self, line: str, now: float, jobs: int = 1) -> None:
        self._line(line, now).given_back += jobs

    def redelivered(self, line: str, now: float) -> None:
        self._line(line, now).redelivered += 1

    def claimed_load(self, line: str, now: float) -> None:
        self._line(line, now).claimed_loads += 1

    def lines(self, in_hand: Mapping[str, int], adapters: Mapping[str, int], now: float) -> dict[str, LineStatus]:
        """Of each line that this node worked for lately, holds `in_hand` jobs of, or `adapters` in memory. What it
        counted of others it keeps."""
        for name in in_hand:
            self._line(name, now)
        return {
            name: _status(line, in_hand.get(name, 0), adapters.get(name, 0), now)
            for name, line in self._lines.items()
            if now - line.last < TOLD_FOR_S or name in in_hand or adapters.get(name)
        }

    def _line(self, name: str, now: float) -> _Line:
        line = self._lines.get(name) or self._lines.setdefault(name, _Line(now))
        line.last = now
        return line


def _status(line: _Line, jobs_in_hand: int, adapters: int, now: float) -> LineStatus:
    while line.slots and now - line.slots[0].since > WINDOW_S:
        line.slots.popleft()
    span = min(WINDOW_S, max(_SLOT_S, now - line.since))
    taken = sum(slot.taken for slot in line.slots)
    batches = sum(slot.batches for slot in line.slots)
    tokens = sum(slot.tokens for slot in line.slots)
    useful = sum(slot.useful for slot in line.slots)
    return LineStatus(
        jobs_in_hand=jobs_in_hand,
        useful_tokens_per_s=round(useful / span, 1),
        items_per_s=round(sum(slot.items for slot in line.slots) / span, 1),
        busy_share=round(min(1.0, sum(slot.seconds for slot in line.slots) / span / line.streams), 3),
        fill=round(sum(slot.fill for slot in line.slots) / batches, 3) if batches else 0.0,
        padding=round(max(0.0, 1 - useful / tokens), 3) if tokens else 0.0,
        wait_s=round(sum(slot.waited for slot in line.slots) / taken, 4) if taken else 0.0,
        given_back=line.given_back,
        redelivered=line.redelivered,
        claimed_loads=line.claimed_loads,
        adapters=adapters,
    )
