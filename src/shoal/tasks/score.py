"""score: how well each document answers one query.

By a cross-encoder, which reads the two together, or by late interaction: query and documents are encoded, or
come as vectors, and are matched here (`maxsim`).
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from shoal.protocol.errors import EmptyInput, Fault, InvalidInput, from_fault
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item, Output, Truncate
from shoal.protocol.tensors import Array
from shoal.tasks import Entry
from shoal.tasks.activations import activated
from shoal.tasks.maxsim import maxsim, ready
from shoal.tasks.prompts import default_prompt, named_prompt, require_task, role_prompt, text_fault
from shoal.tasks.volume import MOST_HELD, check_volume


class Document(msgspec.Struct, frozen=True):
    """`id` is echoed; where it is None the native route says `item-<index>`.

    `vectors` [tokens, dims] are given instead of `text`, for late interaction only. `query` is asked of this
    document instead of the request's. `fault` says that it was already found to be unanswerable.
    """

    text: str = ""
    id: str | None = None
    fault: Fault | None = None
    vectors: Array | None = None
    query: str | None = None


class ScoreRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`raw` asks for logits; `bounded` for scores in 0…1 whatever the model's own activation is (of late
    interaction: for the mean over the query's tokens instead of the sum).

    `query` None: each document brings its own, or is read alone. `label` names the one output that is the
    score of a model with several; `every_label` asks for all of them, and ranks by the greatest. `adapter` names
    the LoRA adapter to compute with, where the model is its base.
    """

    query: str | None
    documents: list[Document]
    query_id: str | None = None
    query_vectors: Array | None = None
    instruction: str = ""
    prompt: str = ""
    truncate: Truncate = "end"
    raw: bool = False
    bounded: bool = False
    label: str = ""
    every_label: bool = False
    adapter: str = ""


class Score(msgspec.Struct, frozen=True):
    """`index` is the document's place in the request. `score` is None with a fault.

    `labels` are the scores of all labels, in the model's order, where the request asked for every one.
    """

    index: int
    score: float | None = None
    fault: Fault | None = None
    labels: tuple[float, ...] = ()


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

    def split(self, request: ScoreRequest, facts: Facts) -> list[Entry]:
        """A pair for each document, or the query and each document by itself.

        Raises InvalidInput for an unreadable query, which no document can answer, and where it is unclear
        which of several labels is the score.
        """
        require_task(self.name, facts)
        if request.query is not None and request.query_vectors is None:
            unreadable = text_fault(request.query)
            if unreadable is not None:
                raise _of_query(unreadable)
        if not facts.reads_pairs:
            return _split_late(request, facts)
        _column(request, facts)
        if request.query_vectors is not None:
            raise _of_query(_NO_VECTORS)
        prompt = _query_prompt(request, facts)
        return [_pair(request, document, prompt) for document in request.documents]

    def join(self, request: ScoreRequest, facts: Facts, outputs: Sequence[Output]) -> ScoreResponse:
        """One score a document, in the order of the request. Raises what kept the query from being encoded."""
        scores = _join_pairs(request, facts, outputs) if facts.reads_pairs else _join_late(request, outputs)
        assert len(scores) == len(request.documents), "as many outputs as documents"
        return ScoreResponse(
            scores=scores,
            tokens=sum(output.tokens for output in outputs),
            truncated=sum(output.truncated for output in outputs),
        )


_NO_VECTORS = InvalidInput("this model reads texts, not vectors").fault()
_NO_TOKENS = EmptyInput("no token of the text has a vector").fault()


def _query_prompt(request: ScoreRequest, facts: Facts) -> str:
    if request.instruction:
        return request.instruction
    return named_prompt(request.prompt, facts) if request.prompt else default_prompt(facts)


def _pair(request: ScoreRequest, document: Document, prompt: str) -> Entry:
    query = request.query if document.query is None else document.query
    fault = document.fault or (_NO_VECTORS if document.vectors is not None else text_fault(document.text))
    if fault is None and document.query is not None:
        fault = text_fault(document.query)
    if fault is not None:
        return fault
    return Item(
        text=document.text if query is None else query,
        pair=None if query is None else document.text,
        prompt=prompt,
        truncate=request.truncate,
        # Always the logits: `join` activates in double precision, where close scores do not tie.
        raw=True,
    )


def _column(request: ScoreRequest, facts: Facts) -> int:
    """Which output of the model is the score.

    As in sentence-transformers, whose CrossEncoder ranks by models with one output only, none of several is
    taken for the score by itself: the request has to name it. Raises InvalidInput, naming them, where it does not.
    """
    if request.every_label:
        return 0
    if request.label in facts.labels:
        return facts.labels.index(request.label)
    if not facts.labels and not request.label:
        return 0
    known = ", ".join(facts.labels) or "none: it gives one score"
    wrong = f"no label named {request.label!r}" if request.label else "label is missing"
    raise InvalidInput(f"{wrong}; this model has: {known}", labels=list(facts.labels), param="label")


def _join_pairs(request: ScoreRequest, facts: Facts, outputs: Sequence[Output]) -> list[Score]:
    done = [output.tensors["score"].numpy().reshape(-1) for output in outputs if output.fault is None]
    width = max(1, len(facts.labels))
    logits = np.array(done, dtype=np.float64).reshape(len(done), width)
    values = logits if request.raw else activated(logits, facts.activation, bounded=request.bounded)
    rows = iter(values.tolist())
    column = _column(request, facts)
    scores = []
    for index, output in enumerate(outputs):
        if output.fault is not None:
            scores.append(Score(index, fault=output.fault))
            continue
        row = next(rows)
        if request.every_label:
            scores.append(Score(index, max(row), labels=tuple(row)))
        else:
            scores.append(Score(index, row[column]))
    return scores


def _split_late(request: ScoreRequest, facts: Facts) -> list[Entry]:
    """The query, then each document."""
    if facts.multivector is None:
        raise InvalidInput("this model gives no multivectors, by which it could score")
    if request.label or request.every_label:
        raise InvalidInput("this model has no labels: it gives one score", param="label")
    if request.query is None and request.query_vectors is None:
        raise InvalidInput("this model scores documents for one query", param="query")
    dims = facts.multivector.dims
    told = request.instruction or request.prompt
    prompt = _query_prompt(request, facts) if told else _role_prompt(True, facts)
    query: Entry
    if request.query_vectors is not None:
        query = ready(request.query_vectors, dims)
        if isinstance(query, Fault):
            raise _of_query(query)
    else:
        query = _one(request.query or "", prompt, request, is_query=True)
    before = _role_prompt(False, facts)
    entries: list[Entry] = [query]
    for document in request.documents:
        if document.fault is not None:
            entries.append(document.fault)
        elif document.vectors is not None:
            entries.append(ready(document.vectors, dims))
        else:
            entries.append(text_fault(document.text) or _one(document.text, before, request, is_query=False))
    check_volume(entries, facts, MOST_HELD)
    return entries


def _role_prompt(is_query: bool, facts: Facts) -> str:
    prompt = role_prompt(is_query, facts)
    return default_prompt(facts) if prompt is None else prompt


def _one(text: str, prompt: str, request: ScoreRequest, *, is_query: bool) -> Item:
    return Item(text=text, prompt=prompt, truncate=request.truncate, kinds=("multivector",), is_query=is_query)


def _join_late(request: ScoreRequest, outputs: Sequence[Output]) -> list[Score]:
    asked, *answers = outputs
    if asked.fault is not None:
        raise _of_query(asked.fault)
    query = asked.tensors["multivector"].numpy()
    if not len(query):
        raise _of_query(_NO_TOKENS)
    share = 1.0 / len(query) if request.bounded and not request.raw else 1.0
    scores = []
    for index, output in enumerate(answers):
        if output.fault is not None:
            scores.append(Score(index, fault=output.fault))
            continue
        document = output.tensors["multivector"].numpy()
        if not len(document):
            scores.append(Score(index, fault=_NO_TOKENS))
            continue
        score = maxsim(query, document) * share
        finite = bool(np.isfinite(score))
        scores.append(Score(index, score) if finite else Score(index, fault=_TOO_LARGE))
    return scores


_TOO_LARGE = InvalidInput("the vectors are too large for a finite score").fault()


def _of_query(fault: Fault) -> Exception:
    """A fault of the query is the request's: it names no document."""
    return from_fault(Fault(fault.code, f"query: {fault.message}", fault.detail | {"param": "query"}))


TASK = ScoreTask()
