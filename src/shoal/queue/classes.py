"""Size classes: jobs of one line kept apart by the size of their bodies, so that those of one pull are alike.

For engines that pad texts to each other; a line of any other has the one class "". Pure: which class a body is
in, and which class is pulled from next. Simulated: to take the class that was served least far is as good as to
know every job's age, and better than the fullest class or merging neighbours.
"""

import bisect
from collections.abc import Iterable

FIRST_BYTES = 96
LAST_BYTES = 3072
RATIO = 2**0.5
BOUNDS = tuple(round(FIRST_BYTES * RATIO**step) for step in range(11))
"""A body of fewer bytes is in the class before."""
CLASSES = ("", *(str(number) for number in range(len(BOUNDS))))
"""What stands for each in a subject. "" also holds bodies beyond the last bound: many texts, which the node that
takes them sorts, or one so long that it fills a batch."""
APART_S = 10.0
"""For so long a line is kept apart by size after it was last asked for."""
ALONE = 0.25
"""A class that brought less than this share of what was asked for is not worth a batch of its own."""
LIKELY = 8
"""A class that was empty is asked again only when so many jobs came out of the stream since."""


def size_class(size_bytes: int) -> str:
    """The class of a body."""
    number = bisect.bisect_right(BOUNDS, size_bytes)
    return str(number) if number < len(BOUNDS) else ""


class Apart:
    """The lines whose jobs are kept apart by size, each until a while after somebody last asked for it."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def keep(self, line: str, now: float) -> None:
        self._until[line] = now + APART_S

    def lines(self, now: float) -> list[str]:
        return [line for line, until in self._until.items() if now < until]

    def class_of(self, line: str, size_bytes: int, now: float) -> str:
        until = self._until.get(line)
        return size_class(size_bytes) if until is not None and now < until else ""


class Served:
    """How far each class of a line was served, in places of the stream that its jobs stand in: of two classes the
    one whose next job stands earlier has waited longer. All nodes that pull from the line tell each other.

    So do those that pull from several lines, of lines instead of classes: a pool's jobs all stand in one stream.
    """

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}
        self._newest = 0

    def took(self, size_class: str, place: int, left: int) -> None:
        """A pull brought the job at `place`, and `left` others wait there yet."""
        self._newest = max(self._newest, place)
        self._put(size_class, place if left else self._newest)

    def found_empty(self, size_class: str) -> None:
        self._put(size_class, self._newest)

    def heard(self, marks: Iterable[tuple[str, int]], newest: int) -> None:
        """What another node says."""
        self._newest = max(self._newest, newest)
        for size_class, mark in marks:
            self._put(size_class, mark)

    def in_order(self, names: Iterable[str]) -> list[str]:
        """The one whose next job is likely to have waited longest first."""
        return sorted(names, key=self._mark)

    def told(self, classes: Iterable[str]) -> tuple[list[tuple[str, int]], int]:
        """What others are to hear of these."""
        return [(each, self._marks[each]) for each in classes if each in self._marks], self._newest

    @property
    def least(self) -> int:
        """How far the class was served that was served least far."""
        return min(map(self._mark, CLASSES))

    def next(self) -> str | None:
        """The class to ask first; None where none is likely to hold anything."""
        first = min(CLASSES, key=self._mark)
        return first if self._newest - self._mark(first) >= LIKELY else None

    def _mark(self, size_class: str) -> int:
        return self._marks.get(size_class, 0)

    def _put(self, size_class: str, mark: int) -> None:
        self._marks[size_class] = max(self._mark(size_class), mark)
