"""score: how well each document answers one query, by a model that reads the two together."""

from collections.abc import Sequence

import msgspec

from shoal.protocol.errors import EmptyInput, Fault
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item, Output, Truncate


class Document(msgspec.Struct, frozen=True):
    """`id` is echoed; where it is None the native route says `item-<index>`."""

    text: str
    id: str | None = None


class ScoreRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`raw` asks for logits; `sigmoid` for scores in 0…1 whatever the model's own activation is."""

    query: str
    documents: list[Document]
    query_id: str | None = None
    instruction: str = ""
    truncate: Truncate = "end"
    raw: bool = False
    sigmoid: bool = False


class Score(msgspec.Struct, frozen=True):
    """`index` is the document's place in the request. `score` is None with a fault."""

    index: int
    score: float | None = None
    fault: Fault | None = None


class ScoreResponse(msgspec.Struct, frozen=True, kw_only=True):
    """`scores` in the order of the request; `ranked` sorts them."""

    scores: list[Score]
    tokens: int
    truncated: int

    def ranked(self) -> list[Score]:
        """Best first; equal scores keep the order of the request; failed ones come last."""
        return sorted(self.scores, key=lambda s: (s.score is None, -(s.score or 0.0)))
