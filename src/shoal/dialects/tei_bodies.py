"""What TEI's routes accept: the request bodies, and the tasks' requests made from them.

As there, vectors are normalised unless told otherwise; unlike there, too long a text is cut unless `truncate` is
false.
"""

from typing import Annotated, Literal

import msgspec

from shoal.dialects.bodies import AtMost, Width, decode
from shoal.protocol.errors import EmptyInput, InvalidInput
from shoal.protocol.facts import Kind
from shoal.protocol.items import Truncate
from shoal.tasks.encode import EncodeRequest, Text
from shoal.tasks.score import Document, ScoreRequest
from shoal.tasks.tokenize import TokenizeRequest


class Cut(msgspec.Struct, frozen=True):
    """What every body may say of too long a text, and the name of one of the model's prompts."""

    truncate: bool | None = None
    truncation_direction: Literal["Left", "Right", "left", "right"] | None = None
    prompt_name: str | None = None

    @property
    def policy(self) -> Truncate:
        if self.truncate is False:
            return "error"
        return "start" if self.truncation_direction in ("Left", "left") else "end"


class Compared(msgspec.Struct, frozen=True):
    source_sentence: str
    sentences: list[str]


class EmbedBody(Cut, frozen=True, kw_only=True):
    """Hugging Face's client asks for similarity at whatever URL it was given, so it may be asked for here."""

    inputs: str | Annotated[list[str], AtMost] | Compared
    normalize: bool | None = None
    dimensions: Width | None = None


class SimilarityBody(msgspec.Struct, frozen=True):
    inputs: Compared
    parameters: Cut | None = None


class PredictBody(Cut, frozen=True, kw_only=True):
    """`inputs` is a text, a pair of texts, or a list of lists of one or two."""

    inputs: str | Annotated[list[str | list[str]], AtMost]
    raw_scores: bool | None = None


class RerankBody(Cut, frozen=True, kw_only=True):
    """`label` is ours: which output of a model with several is the score."""

    query: str
    texts: list[str]
    raw_scores: bool | None = None
    return_text: bool | None = None
    label: str | None = None


class TokenizeBody(msgspec.Struct, frozen=True):
    inputs: str | Annotated[list[str], AtMost]
    add_special_tokens: bool | None = None
    prompt_name: str | None = None


class Embed(EncodeRequest, frozen=True, kw_only=True):
    alone: bool = False
    """The input was one text, not a list of texts; the answer is a list all the same."""


class Similarity(EncodeRequest, frozen=True, kw_only=True):
    """The source is the first of the inputs; the others are compared with it."""


class Predict(ScoreRequest, frozen=True, kw_only=True):
    alone: bool = False


class Rerank(ScoreRequest, frozen=True, kw_only=True):
    return_text: bool = False


class Tokenize(TokenizeRequest, frozen=True, kw_only=True):
    alone: bool = False


_embed = msgspec.json.Decoder(EmbedBody)
_similarity = msgspec.json.Decoder(SimilarityBody)
_predict = msgspec.json.Decoder(PredictBody)
_rerank = msgspec.json.Decoder(RerankBody)
_tokenize = msgspec.json.Decoder(TokenizeBody)
_KINDS: dict[str, Kind] = {"embed_all": "multivector", "embed_sparse": "sparse"}


def request_of(route: str, body: bytes) -> EncodeRequest | ScoreRequest | TokenizeRequest:
    """Raises InvalidInput, naming what is wrong and where."""
    match route:
        case "similarity":
            return _similarity_request(decode(_similarity, body))
        case "predict":
            return _predict_request(decode(_predict, body))
        case "rerank_tei":
            return _rerank_request(decode(_rerank, body))
        case "tokenize":
            return _tokenize_request(decode(_tokenize, body))
    asked, kind = decode(_embed, body), _KINDS.get(route, "dense")
    if not isinstance(asked.inputs, Compared):
        return _embed_request(asked, asked.inputs, kind)
    if kind == "dense":
        return _similarity_request(decode(_similarity, body))
    raise InvalidInput("inputs is an object; this route takes a text or a list of texts", param="inputs")


def _embed_request(asked: EmbedBody, inputs: str | list[str], kind: Kind) -> Embed:
    alone = isinstance(inputs, str)
    texts = [inputs] if isinstance(inputs, str) else inputs
    return Embed(
        inputs=_texts(texts, "inputs"),
        alone=alone,
        kinds=(kind,),
        prompt=asked.prompt_name or "",
        dims=asked.dimensions or 0,
        normalize=asked.normalize is not False if kind == "dense" else None,
        truncate=asked.policy,
    )


def _similarity_request(asked: SimilarityBody) -> Similarity:
    cut = asked.parameters or Cut()
    sentences = _texts(asked.inputs.sentences, "inputs.sentences")
    return Similarity(
        inputs=[Text(asked.inputs.source_sentence), *sentences],
        kinds=("dense",),
        prompt=cut.prompt_name or "",
        normalize=True,
        truncate=cut.policy,
    )


def _predict_request(asked: PredictBody) -> Predict:
    """Raises InvalidInput for a list that is neither a pair nor made of lists."""
    given = asked.inputs
    if isinstance(given, str):
        given = [given]
    alone = all(isinstance(each, str) for each in given)
    read = [given] if alone else given
    documents = []
    for index, texts in enumerate(read):
        if isinstance(texts, str) or len(texts) not in (1, 2):
            raise InvalidInput(
                f"inputs[{index}] is not a list of one text or two; a lone pair is a list of two strings",
                param="inputs",
            )
        one, *more = [text for text in texts if isinstance(text, str)]
        documents.append(Document(more[0], query=one) if more else Document(one))
    raw = asked.raw_scores or False
    return Predict(
        query=None,
        documents=documents,
        alone=alone,
        every_label=True,
        prompt=asked.prompt_name or "",
        truncate=asked.policy,
        raw=raw,
        bounded=not raw,
    )


def _rerank_request(asked: RerankBody) -> Rerank:
    raw = asked.raw_scores or False
    return Rerank(
        query=asked.query,
        documents=[Document(text) for text in _given(asked.texts, "texts")],
        prompt=asked.prompt_name or "",
        truncate=asked.policy,
        raw=raw,
        bounded=not raw,
        label=asked.label or "",
        return_text=asked.return_text or False,
    )


def _tokenize_request(asked: TokenizeBody) -> Tokenize:
    alone = isinstance(asked.inputs, str)
    texts = [asked.inputs] if isinstance(asked.inputs, str) else asked.inputs
    return Tokenize(
        texts=_given(texts, "inputs"),
        alone=alone,
        markers=asked.add_special_tokens is not False,
        prompt=asked.prompt_name or "",
    )


def _given(texts: list[str], what: str) -> list[str]:
    if not texts:
        raise EmptyInput(f"{what} is empty; give at least one", param=what)
    return texts


def _texts(texts: list[str], what: str) -> list[Text]:
    return [Text(text) for text in _given(texts, what)]
