"""What can go wrong that no server said: nobody answered, the answer was not ours, some inputs failed.

Everything a server does say is raised as the class of its code in `shoal.protocol.errors`.

    ShoalError
    ├── ServerUnreachable   CONNECTION_FAILED   also a ConnectionError
    ├── BadAnswer           BAD_ANSWER          what answered does not speak the wire
    └── ItemsFailed         ITEMS_FAILED        some inputs of a request failed, the others did not
"""

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.protocol.errors import ShoalError


class ServerUnreachable(ShoalError, ConnectionError):
    """No connection, or one that broke before the answer came. `detail["url"]` is the base URL."""

    code, status = "CONNECTION_FAILED", 503


class BadAnswer(ShoalError):
    """Something answered, but not as a Shoal server does: a proxy's page, a redirect, half an answer."""

    code, status = "BAD_ANSWER", 502


class ItemsFailed(ShoalError):
    """Some inputs failed. `errors` has the error of each by its index; `results` what became of the others.

    For encode `results` has one entry per input: a vector, or None where it failed. For score it is the
    ranking of the documents that did not fail.
    """

    code, status = "ITEMS_FAILED", 400

    def __init__(self, errors: Mapping[int, ShoalError], results: Sequence[Any], inputs: int) -> None:
        index, first = next(iter(errors.items()))
        what = f"{first.code}: {first.message}"
        super().__init__(f"{len(errors)} of {inputs} inputs failed; the first has index {index} ({what})")
        self.errors = dict(errors)
        self.results = results

    @property
    def indices(self) -> list[int]:
        """Which inputs failed, ascending, counted from 0."""
        return sorted(self.errors)
