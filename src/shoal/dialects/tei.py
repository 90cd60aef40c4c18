"""Text Embeddings Inference's API: /embed, /embed_all, /embed_sparse, /predict, /rerank, /similarity,
/tokenize, and /.

TEI's clients name no model: a path may go on with it, as /embed/org/name; without one, and without the `model`
that is ours in a body, the default answers. The API has no place for an error on one input, so one bad input
fails the request and is named.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from shoal.dialects import Reply, Route, Timing
from shoal.dialects.arrays import plain_list
from shoal.dialects.bodies import JSON, answer_headers, json_only, peek_model
from shoal.dialects.refusals import at, error_fields, refusal
from shoal.dialects.tei_bodies import Embed, Predict, Rerank, Similarity, Tokenize, request_of
from shoal.protocol import errors
from shoal.protocol.envelope import Envelope
from shoal.protocol.errors import Fault, ShoalError
from shoal.protocol.facts import Facts
from shoal.tasks.encode import EncodeRequest, EncodeResponse, Vector
from shoal.tasks.score import Score, ScoreRequest, ScoreResponse
from shoal.tasks.tokenize import TokenizeRequest, TokenizeResponse

Request = EncodeRequest | ScoreRequest | TokenizeRequest
Response = EncodeResponse | ScoreResponse | TokenizeResponse

_encoder = msgspec.json.Encoder()


_ROUTES = (
    Route("embed", "POST", "/embed", "encode", kind="dense"),
    Route("embed_all", "POST", "/embed_all", "encode", kind="multivector"),
    Route("embed_sparse", "POST", "/embed_sparse", "encode", kind="sparse"),
    Route("similarity", "POST", "/similarity", "encode", kind="dense"),
    Route("tokenize", "POST", "/tokenize", "tokenize"),
    Route("predict", "POST", "/predict", "score"),
    Route("rerank_tei", "POST", "/rerank", "score", keys=("texts",)),
)


class Tei:
    name = "tei"
    routes = (
        Route("embed_root", "POST", "/", "encode", kind="dense"),
        *_ROUTES,
        *(Route(route.name, route.method, route.path + "/{model}", route.task) for route in _ROUTES),
    )

    def peek(self, route: str, body: bytes) -> str:
        return peek_model(body)

    def decode(self, envelope: Envelope, body: bytes) -> Request:
        json_only(envelope.content_type)
        return request_of(envelope.route, body)

    def encode(
        self, envelope: Envelope, request: Request, response: Response, facts: Facts, timing: Timing
    ) -> Reply:
        for index, fault in enumerate(_faults(response)):
            if fault is not None:
                return self.refuse(at(fault, _place(request, index)))
        answer: Any
        if isinstance(response, EncodeResponse):
            write = _compared if isinstance(request, Similarity) else _ENCODED.get(envelope.route, _dense)
            answer = write(response.vectors)
        elif isinstance(response, TokenizeResponse):
            answer = [text.tokens for text in response.texts]
        elif isinstance(request, Predict):
            answer = [_labelled(score, facts) for score in response.scores]
            answer = answer[0] if request.alone else answer
        else:
            assert isinstance(request, Rerank), "the routes for scores are these two"
            answer = [_rank(score, request) for score in response.ranked()]
        truncated = 0 if isinstance(response, TokenizeResponse) else response.truncated
        headers = answer_headers(envelope, timing, truncated, JSON)
        headers.append(("x-compute-tokens", str(response.tokens)))
        return Reply(200, tuple(headers), _encoder.encode(answer))

    def refuse(self, error: ShoalError, *, accept: str = "") -> Reply:
        other = error.status, "Backend" if error.status >= 500 else "Validation"
        status, kind = next((to for cause, to in _ERRORS if isinstance(error, cause)), other)
        return refusal(error, error_fields(error) | {"error": error.message, "error_type": kind}, status=status)


_ERRORS: tuple[tuple[type[ShoalError], tuple[int, str]], ...] = (
    (errors.EmptyInput, (400, "Empty")),
    (errors.InvalidInput, (413, "Validation")),
    (errors.InputTooLong, (413, "Validation")),
    (errors.PayloadTooLarge, (413, "Validation")),
    (errors.InferenceError, (424, "Backend")),
    (errors.ModelLoadFailed, (424, "Backend")),
    (errors.RateLimited, (429, "Overloaded")),
    (errors.QueueFull, (429, "Overloaded")),
    (errors.ResourceExhausted, (429, "Overloaded")),
    (errors.ModelLoading, (503, "Unhealthy")),
    (errors.NoNode, (503, "Unhealthy")),
    (errors.ShuttingDown, (503, "Unhealthy")),
)
"""Status and `error_type` of TEI for ours, the first that fits; any other keeps its own status."""


def _faults(response: Response) -> list[Fault | None]:
    if isinstance(response, EncodeResponse):
        return [vector.fault for vector in response.vectors]
    if isinstance(response, TokenizeResponse):
        return [text.fault for text in response.texts]
    return [score.fault for score in response.scores]


def _place(request: Request, index: int) -> str:
    """What the input with this index is called in the body."""
    if isinstance(request, Rerank):
        return f"texts[{index}]"
    if isinstance(request, Embed | Predict | Tokenize):
        return "inputs" if request.alone else f"inputs[{index}]"
    return f"inputs.sentences[{index - 1}]" if index else "inputs.source_sentence"


def _dense(vectors: list[Vector]) -> list[Any]:
    return [vector.dense.tolist() for vector in vectors if vector.dense is not None]


def _every_token(vectors: list[Vector]) -> list[Any]:
    return [vector.multivector.tolist() for vector in vectors if vector.multivector is not None]


def _sparse(vectors: list[Vector]) -> list[Any]:
    found = [vector.sparse for vector in vectors if vector.sparse is not None]
    return [
        [{"index": index, "value": value} for index, value in zip(*map(plain_list, each), strict=True)]
        for each in ((sparse.indices, sparse.values) for sparse in found)
    ]


def _compared(vectors: list[Vector]) -> list[float]:
    """The cosine of the first with each of the others; all have length 1."""
    source, *others = [vector.dense for vector in vectors if vector.dense is not None]
    return [max(-1.0, min(1.0, float(source @ other))) for other in others]


_ENCODED: dict[str, Callable[[list[Vector]], list[Any]]] = {
    "embed_all": _every_token,
    "embed_sparse": _sparse,
}


def _labelled(score: Score, facts: Facts) -> list[dict[str, Any]]:
    """Every label with its score, best first; the only one of a model that names none is LABEL_0."""
    names = facts.labels or ("LABEL_0",)
    found = [{"label": name, "score": value} for name, value in zip(names, score.labels, strict=True)]
    return sorted(found, key=lambda entry: -entry["score"])


def _rank(score: Score, request: Rerank) -> dict[str, Any]:
    found: dict[str, Any] = {"index": score.index, "score": score.score}
    return found | {"text": request.documents[score.index].text} if request.return_text else found


DIALECT = Tei()
