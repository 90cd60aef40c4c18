"""part: some items of a large request that another node took apart.

What is asked are the items themselves, and the answer is their outputs; the node that took the request apart joins
them by the request's own task.
"""

from collections.abc import Sequence

import msgspec

from shoal.protocol.facts import Facts
from shoal.protocol.items import Item, Output
from shoal.tasks import Entry


class PartRequest(msgspec.Struct, frozen=True):
    items: list[Item]


class PartResponse(msgspec.Struct, frozen=True):
    """As many outputs as items, in the same order."""

    outputs: list[Output]


class Part:
    name = "part"

    def split(self, request: PartRequest, facts: Facts) -> list[Entry]:
        """What the model cannot do was refused when the request was taken apart."""
        return list(request.items)

    def join(self, request: PartRequest, facts: Facts, outputs: Sequence[Output]) -> PartResponse:
        return PartResponse(list(outputs))


TASK = Part()
