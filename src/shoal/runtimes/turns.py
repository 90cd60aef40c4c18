"""Turns at this machine's processor: over all runtime processes, as many forward passes run at once as it has
cores.

More of them would take each other's caches and finish no sooner. A pipe holds a byte for every free turn, as that
of make's jobserver does: who reads it may run, and who waits is served in order. Whose each turn is stands in
shared memory, so that who made them gets back those of a process that died: a node, or `shoal up` for all of its
nodes.

The last turn is a spare one: with it a process alone has its next pass in the engine before one ends, and no core
waits for it. Where several processes are at work the others fill that gap, and the spare is withdrawn.
"""

import mmap
import os
import sys
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_VARIABLE = "SHOAL_TURNS"
_WIDTH = 8
_IN_USE, _TO_WITHDRAW, _WITHDRAWN = range(3)


class Turns:
    def __init__(self, reader: int, writer: int, owners: int) -> None:
        self._reader, self._writer, self._owners_fd = reader, writer, owners
        self._owners = mmap.mmap(owners, 0)
        self._count = len(self._owners) // _WIDTH - 1
        self._spare = self._count - 1
        self._missing: set[int] = set()

    @classmethod
    def make(cls, count: int, spare: bool = True) -> "Turns | None":
        """`count`, and the spare one where it is wanted from the start; at most 255, more than which a machine's
        memory could not feed. None where the system is not Linux: there nobody waits."""
        if sys.platform != "linux":
            return None
        count = min(count + 1, 255)
        reader, writer = os.pipe()
        owners = os.memfd_create("shoal-turns")
        os.truncate(owners, (count + 1) * _WIDTH)  # the last word is the state of the spare one
        turns = cls(reader, writer, owners)
        if not spare:
            turns._set_owner(count, _WITHDRAWN)
        os.write(writer, bytes(range(count if spare else count - 1)))
        return turns

    @classmethod
    def inherited(cls) -> "Turns | None":
        """What this process was started with."""
        given = os.environ.get(_VARIABLE)
        return cls(*map(int, given.split(","))) if given else None

    @property
    def fds(self) -> tuple[int, int, int]:
        """What a process that is to take part is given, with `environment`."""
        return self._reader, self._writer, self._owners_fd

    @property
    def environment(self) -> dict[str, str]:
        return {_VARIABLE: ",".join(map(str, self.fds))}

    def take(self) -> int:
        """Wait for a turn."""
        while True:
            (turn,) = os.read(self._reader, 1)
            if not self._owner(turn):  # else it was given out twice
                self._set_owner(turn, os.getpid())
                return int(turn)

    def give(self, turn: int) -> None:
        if self._owner(turn) != os.getpid():
            return
        if turn == self._spare and self._owner(self._count) == _TO_WITHDRAW:
            self._set_owner(turn, 0)
            self._set_owner(self._count, _WITHDRAWN)
        else:
            self._put_back(turn)

    def want_spare(self, wanted: bool) -> None:
        """Who made them: whether the spare turn is to be had. Withdrawn, it goes when it is next given back."""
        state = self._owner(self._count)
        if wanted and state != _IN_USE:
            self._set_owner(self._count, _IN_USE)
            if state == _WITHDRAWN:
                self._put_back(self._spare)
        elif not wanted and state == _IN_USE:
            self._set_owner(self._count, _TO_WITHDRAW)

    def reclaim(self, runs: Callable[[int], bool]) -> None:
        """Who made them, once in a while: put back the turns of processes that do not run any more.

        A process killed between reading its turn and writing down that it has it leaves one that is nowhere: such
        a turn is put back when it is missing twice in a row.
        """
        free = self._free_ones()
        everyone = set(range(self._count))
        if self._owner(self._count) == _WITHDRAWN:
            everyone -= {self._spare}
        missing = {turn for turn in everyone - free if not self._owner(turn)}
        dead = {turn for turn in everyone if (owner := self._owner(turn)) and not runs(owner)}
        for turn in free | dead | (missing & self._missing):
            self._put_back(turn)
        self._missing = missing - self._missing

    def close(self) -> None:
        self._owners.close()
        for fd in self.fds:
            os.close(fd)

    def _free_ones(self) -> set[int]:
        """All that are in the pipe, taken out of it. By a description of its own: the others' must block."""
        peek = os.open(f"/proc/self/fd/{self._reader}", os.O_RDONLY | os.O_NONBLOCK)
        try:
            return set(os.read(peek, 256))
        except BlockingIOError:
            return set()
        finally:
            os.close(peek)

    def _put_back(self, turn: int) -> None:
        self._set_owner(turn, 0)
        os.write(self._writer, bytes([turn]))

    def _owner(self, turn: int) -> int:
        return int.from_bytes(self._owners[turn * _WIDTH : (turn + 1) * _WIDTH], "little")

    def _set_owner(self, turn: int, pid: int) -> None:
        self._owners[turn * _WIDTH : (turn + 1) * _WIDTH] = pid.to_bytes(_WIDTH, "little")


_ours: Turns | None = None


def join_in() -> None:
    """Called once by a runtime process, which from then on waits for its turns."""
    global _ours
    _ours = Turns.inherited()


def in_turn(work: Callable[[], T]) -> tuple[T, float]:
    """What `work` gives when it is our turn, and how many seconds it took. At once in a process of no node."""
    if _ours is None:
        return _timed(work)
    turn = _ours.take()
    try:
        return _timed(work)
    finally:
        _ours.give(turn)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began
