"""Cohere's embed API, v1 and v2: texts to vectors in several number types at once.

It has no place for an error on one text, so one bad text fails the request and is named.
"""

import base64
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from shoal.dialects import Reply, Route, Timing
from shoal.dialects.bodies import ABSENT, JSON, Width, answer_headers, decode, json_only, peek_model
from shoal.dialects.cohere import DIALECT as COHERE
from shoal.dialects.refusals import at
from shoal.protocol.envelope import Envelope
from shoal.protocol.errors import InvalidInput, ShoalError
from shoal.protocol.facts import Facts
from shoal.protocol.items import Truncate
from shoal.protocol.tensors import Array
from shoal.tasks.dtypes import cast
from shoal.tasks.encode import EncodeRequest, EncodeResponse, Text

Type = Literal["float", "int8", "uint8", "binary", "ubinary", "base64"]


class Content(msgspec.Struct, frozen=True):
    type: str
    text: str | None = None


class Input(msgspec.Struct, frozen=True):
    content: list[Content]


class Body(msgspec.Struct, frozen=True):
    """`images` are seen so as to say that they are not read. `prompt_name` is ours."""

    texts: list[str] | None = None
    inputs: list[Input] | None = None
    images: msgspec.Raw = ABSENT
    input_type: Literal["search_query", "search_document", "classification", "clustering"] | None = None
    embedding_types: list[Type] | None = None
    output_dimension: Width | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    truncate: Literal["NONE", "START", "END"] | None = None
    prompt_name: str | None = None


class Embed(EncodeRequest, frozen=True, kw_only=True):
    """`types` () is v1's plain answer: floats, under no name."""

    types: tuple[Type, ...] = ()


_body = msgspec.json.Decoder(Body)
_encoder = msgspec.json.Encoder()
_TRUNCATE: dict[str | None, Truncate] = {None: "end", "END": "end", "START": "start", "NONE": "error"}
_IS_QUERY = {"search_query": True, "search_document": False}


class CohereEmbed:
    name = "cohere_embed"
    routes = (
        Route("embed_v1", "POST", "/v1/embed", "encode", kind="dense"),
        Route("embed_v2", "POST", "/v2/embed", "encode", kind="dense"),
    )

    def peek(self, route: str, body: bytes) -> str:
        return peek_model(body)

    def decode(self, envelope: Envelope, body: bytes) -> Embed:
        json_only(envelope.content_type)
        asked = decode(_body, body)
        default: tuple[Type, ...] = ("float",) if envelope.route == "embed_v2" else ()
        return Embed(
            inputs=[Text(text) for text in _texts(asked)],
            kinds=("dense",),
            types=tuple(dict.fromkeys(asked.embedding_types or default)),
            prompt=asked.prompt_name or "",
            is_query=_IS_QUERY.get(asked.input_type or ""),
            purpose=asked.input_type or "",
            dims=asked.output_dimension or 0,
            max_tokens=asked.max_tokens or 0,
            truncate=_TRUNCATE[asked.truncate],
        )

    def encode(
        self, envelope: Envelope, request: Embed, response: EncodeResponse, facts: Facts, timing: Timing
    ) -> Reply:
        for index, vector in enumerate(response.vectors):
            if vector.fault is not None:
                return self.refuse(at(vector.fault, f"texts[{index}]"))
        rows = np.stack([vector.dense for vector in response.vectors if vector.dense is not None])
        plain = not request.types
        body = {
            "id": envelope.id,
            "response_type": "embeddings_floats" if plain else "embeddings_by_type",
            "embeddings": rows.tolist() if plain else {name: _AS[name](rows) for name in request.types},
            "texts": [each.text for each in request.inputs],
            "meta": {
                "api_version": {"version": "2" if envelope.route == "embed_v2" else "1"},
                "billed_units": {"input_tokens": response.tokens},
            },
        }
        headers = answer_headers(envelope, timing, response.truncated, JSON)
        return Reply(200, tuple(headers), _encoder.encode(body))

    def refuse(self, error: ShoalError, *, accept: str = "") -> Reply:
        return COHERE.refuse(error, accept=accept)


def _texts(asked: Body) -> list[str]:
    """Raises InvalidInput unless there are texts, in one of the two places that the API has for them."""
    if asked.images is not ABSENT and bytes(asked.images) not in (b"null", b"[]"):
        raise InvalidInput("images cannot be read; send texts", param="images")
    if asked.texts and asked.inputs:
        raise InvalidInput("give texts or inputs, not both", param="inputs")
    if asked.inputs:
        return [_text(each, f"inputs[{index}]") for index, each in enumerate(asked.inputs)]
    if not asked.texts:
        raise InvalidInput("texts is missing or empty; give at least one", param="texts")
    return asked.texts


def _text(given: Input, place: str) -> str:
    """The texts of one input, a line each."""
    for content in given.content:
        if content.type != "text" or content.text is None:
            raise InvalidInput(f"{place} holds a {content.type[:40]!r}; only text can be read", param=place)
    return "\n".join(content.text or "" for content in given.content)


def _signed(rows: Array) -> list[Any]:
    """Bits as signed bytes: 128 less than the unsigned ones."""
    signed: list[Any] = (cast(rows, "binary").astype(np.int16) - 128).tolist()
    return signed


_AS: dict[Type, Callable[[Array], list[Any]]] = {
    "float": lambda rows: rows.tolist(),
    "int8": lambda rows: cast(rows, "int8").tolist(),
    "uint8": lambda rows: cast(rows, "uint8").tolist(),
    "ubinary": lambda rows: cast(rows, "ubinary").tolist(),
    "binary": _signed,
    "base64": lambda rows: [base64.b64encode(row.astype("<f4").tobytes()).decode("ascii") for row in rows],
}

DIALECT = CohereEmbed()
