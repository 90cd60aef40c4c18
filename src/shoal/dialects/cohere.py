"""The rerank API of Cohere (v1 and v2) and Jina: one body, one answer, three paths (/rerank shared with TEI).

It has no place for an error on one document, so one bad document fails the request and is named.
"""

from typing import Annotated, Any

import msgspec

from shoal.dialects import Reply, Route, Timing
from shoal.dialects.bodies import ABSENT, JSON, answer_headers, decode, json_only, peek_model
from shoal.dialects.refusals import at, error_fields, refusal
from shoal.protocol.envelope import Envelope
from shoal.protocol.errors import InvalidInput, ShoalError
from shoal.protocol.facts import Facts
from shoal.protocol.items import Truncate
from shoal.tasks.score import Document, Score, ScoreRequest, ScoreResponse


class TextDocument(msgspec.Struct, frozen=True):
    text: str


class Body(msgspec.Struct, frozen=True):
    """`raw_scores`, `truncate`, `prompt_name` and `label` are ours. `texts` is what TEI calls `documents`."""

    query: str | None = None
    documents: list[str | TextDocument] | None = None
    texts: msgspec.Raw = ABSENT
    top_n: Annotated[int, msgspec.Meta(ge=1)] | None = None
    return_documents: bool | None = None
    rank_fields: list[str] | None = None
    raw_scores: bool | None = None
    truncate: Truncate | None = None
    prompt_name: str | None = None
    label: str | None = None


class Rerank(ScoreRequest, frozen=True, kw_only=True):
    """`top_n` 0 returns every document."""

    top_n: int = 0
    return_documents: bool = False


_body = msgspec.json.Decoder(Body)
_encoder = msgspec.json.Encoder()


class Cohere:
    name = "cohere"
    routes = (
        Route("rerank_v1", "POST", "/v1/rerank", "score"),
        Route("rerank_v2", "POST", "/v2/rerank", "score"),
        Route("rerank", "POST", "/rerank", "score"),
    )

    def peek(self, route: str, body: bytes) -> str:
        return peek_model(body)

    def decode(self, envelope: Envelope, body: bytes) -> Rerank:
        json_only(envelope.content_type)
        asked = decode(_body, body)
        raw = asked.raw_scores or False
        return Rerank(
            query=_query(asked),
            documents=_documents(asked),
            prompt=asked.prompt_name or "",
            label=asked.label or "",
            truncate=asked.truncate or "end",
            raw=raw,
            bounded=not raw,
            top_n=asked.top_n or 0,
            return_documents=asked.return_documents or False,
        )

    def encode(
        self, envelope: Envelope, request: Rerank, response: ScoreResponse, facts: Facts, timing: Timing
    ) -> Reply:
        for score in response.scores:
            if score.fault is not None:
                return self.refuse(at(score.fault, f"documents[{score.index}]"))

        def result(score: Score) -> dict[str, Any]:
            found: dict[str, Any] = {"index": score.index, "relevance_score": score.score}
            if request.return_documents:
                found["document"] = {"text": request.documents[score.index].text}
            return found

        best = response.ranked()[: request.top_n or None]
        body = {
            "id": envelope.id,
            "model": envelope.shown,
            "results": [result(score) for score in best],
            "meta": {
                "api_version": {"version": "2" if envelope.route == "rerank_v2" else "1"},
                "billed_units": {"search_units": 1},
            },
            "usage": {"total_tokens": response.tokens, "truncated": response.truncated},
        }
        headers = answer_headers(envelope, timing, response.truncated, JSON)
        return Reply(200, tuple(headers), _encoder.encode(body))

    def refuse(self, error: ShoalError, *, accept: str = "") -> Reply:
        """Cohere's clients read `message`, Jina's `detail`; `error` holds the facts."""
        body = {"message": error.message, "code": error.code, "detail": error.message}
        return refusal(error, body | {"error": error_fields(error)})


def _query(asked: Body) -> str:
    if asked.query is None:
        raise InvalidInput("query is missing", param="query")
    return asked.query


def _documents(asked: Body) -> list[Document]:
    if asked.documents is None and asked.texts is not ABSENT:
        raise InvalidInput("this API takes `documents`; `texts` is TEI's, which is at /rerank", param="documents")
    if not asked.documents:
        missing = "missing" if asked.documents is None else "empty"
        raise InvalidInput(f"documents is {missing}; give at least one", param="documents")
    if asked.rank_fields not in (None, [], ["text"]):
        raise InvalidInput("rank_fields other than ['text'] are not read", param="rank_fields")
    return [Document(each if isinstance(each, str) else each.text) for each in asked.documents]


DIALECT = Cohere()
