"""score: how well each document answers one query, by a model that reads the two together."""

from collections.abc import Sequence

import msgspec
import numpy as np

from shoal.protocol.errors import Fault, from_fault
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item, Output, Truncate
from shoal.tasks.prompts import default_prompt, require_task, text_fault


class Document(msgspec.Struct, frozen=True):
    """`id` is echoed; where it is None the native route says `item-<index>`.

    `fault` says that it was already found to be unanswerable.
    """

    text: str
    id: str | None = None
    fault: Fault | None = None


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


class ScoreTask:
    name = "score"

    def split(self, request: ScoreRequest, facts: Facts) -> list[Item | Fault]:
        """A pair for each document. Raises InvalidInput for an empty query, which no document can answer."""
        require_task(self.name, facts)
        unreadable = text_fault(request.query)
        if unreadable is not None:
            raise from_fault(Fault(unreadable.code, f"query: {unreadable.message}", {"param": "query"}))
        prompt = request.instruction or default_prompt(facts)
        return [
            document.fault
            or text_fault(document.text)
            or Item(
                text=request.query,
                pair=document.text,
                prompt=prompt,
                truncate=request.truncate,
                # Always the logit: `join` activates in double precision, where close scores do not tie.
                raw=True,
            )
            for document in request.documents
        ]

    def join(self, request: ScoreRequest, facts: Facts, outputs: Sequence[Output]) -> ScoreResponse:
        """One score a document, in the order of the request."""
        assert len(outputs) == len(request.documents), "as many outputs as documents"
        done = [output.tensors["score"].numpy().reshape(()) for output in outputs if output.fault is None]
        values = np.array(done, dtype=np.float64)
        if not request.raw and (request.sigmoid or facts.activation == "sigmoid"):
            values = _sigmoid(values)
        found = iter(values.tolist())
        return ScoreResponse(
            scores=[
                Score(i, next(found) if output.fault is None else None, output.fault)
                for i, output in enumerate(outputs)
            ],
            tokens=sum(output.tokens for output in outputs),
            truncated=sum(output.truncated for output in outputs),
        )


def _sigmoid(
    logits: "np.ndarray[tuple[int], np.dtype[np.float64]]",
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    # exp of a non-positive number only, so that no logit overflows.
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1.0, small) / (1.0 + small)


TASK = ScoreTask()
