"""What is asked, as requests of one API. `ready` makes them; the bodies are encoded once, before any load."""

import urllib.parse
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from shoal.lab.mixes import Asked, Chat, Mix, Pairs, Raw, Shape, Texts, keys_of
from shoal.lab.run import Request
from shoal.lab.tokens import Counter
from shoal.protocol.errors import InvalidInput

Api = Literal["openai", "rerank", "chat", "native"]
SHAPES: dict[Api, Shape] = {"openai": "texts", "rerank": "pairs", "chat": "chat", "native": "texts"}
"""What the made-up mixes hold for each API."""

_BODIES: dict[Api, tuple[frozenset[str], ...]] = {
    "openai": (frozenset({"input"}), frozenset({"messages"})),  # some servers embed a chat
    "rerank": (frozenset({"query", "documents"}), frozenset({"query", "texts"})),
    "chat": (frozenset({"messages"}),),
    "native": (frozenset({"items"}),),
}
"""Keys that a whole body of each API has, one set or another; what else is in it is the server's to judge."""

JSON, MSGPACK = "application/json", "application/msgpack"


class Wire(msgspec.Struct, frozen=True):
    """How a target is spoken to. `prefix` is a path before every route; `encoding` of openai's vectors."""

    api: Api
    model: str
    prefix: str = ""
    encoding: Literal["base64", "float"] = "base64"
    max_tokens: int = 64
    """That a chat's answer may have."""


def ready(wire: Wire, mix: Mix, counter: Counter) -> list[Request]:
    """A request for each entry of `mix`. Raises InvalidInput where the API has no place for what it holds; of a
    whole body the line is named."""
    build = BUILDERS[wire.api]
    found = []
    for asked in mix.asked:
        if isinstance(asked, Raw):
            _check_body(wire, mix, asked)
        items, tokens = counter.of(asked)
        path, body, content_type = build(wire, asked)
        found.append(
            Request(
                wire.prefix + path,
                body,
                content_type,
                items,
                tokens,
                headers=(("accept", _accepted(content_type)),),
            )
        )
    return found


Built = tuple[str, bytes, str]


def _openai(wire: Wire, asked: Asked) -> Built:
    if isinstance(asked, Raw):
        return "/v1/embeddings", asked.body, JSON
    if not isinstance(asked, Texts):
        raise _no_place(wire, asked)
    given: Any = asked.texts[0] if len(asked.texts) == 1 else asked.texts
    body = {"model": wire.model, "input": given, "encoding_format": wire.encoding}
    return "/v1/embeddings", msgspec.json.encode(body), JSON


def _rerank(wire: Wire, asked: Asked) -> Built:
    """As Cohere and Jina have it."""
    if isinstance(asked, Raw):
        return "/v1/rerank", asked.body, JSON
    if not isinstance(asked, Pairs):
        raise _no_place(wire, asked)
    body = {"model": wire.model, "query": asked.query, "documents": asked.documents}
    return "/v1/rerank", msgspec.json.encode(body), JSON


def _chat(wire: Wire, asked: Asked) -> Built:
    """As a stream, because that alone shows when the first token came."""
    if isinstance(asked, Raw):
        return "/v1/chat/completions", asked.body, JSON
    if not isinstance(asked, Chat):
        raise _no_place(wire, asked)
    body = {
        "model": wire.model,
        "messages": asked.messages,
        "max_tokens": wire.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return "/v1/chat/completions", msgspec.json.encode(body), JSON


def _native(wire: Wire, asked: Asked) -> Built:
    """Texts are encoded, pairs scored, both in msgpack."""
    model = urllib.parse.quote(wire.model, safe="/:@")
    if isinstance(asked, Texts):
        return f"/v1/encode/{model}", msgspec.msgpack.encode({"items": asked.texts}), MSGPACK
    if isinstance(asked, Pairs):
        body = {"query": asked.query, "items": asked.documents}
        return f"/v1/score/{model}", msgspec.msgpack.encode(body), MSGPACK
    if isinstance(asked, Raw):
        route = "score" if b'"query"' in asked.body else "encode"
        return f"/v1/{route}/{model}", asked.body, JSON
    raise _no_place(wire, asked)


BUILDERS: dict[Api, Callable[[Wire, Asked], Built]] = {
    "openai": _openai,
    "rerank": _rerank,
    "chat": _chat,
    "native": _native,
}


def _accepted(content_type: str) -> str:
    return MSGPACK if content_type == MSGPACK else "*/*"


def _check_body(wire: Wire, mix: Mix, asked: Raw) -> None:
    keys = keys_of(asked.body)
    if any(wanted <= set(keys) for wanted in _BODIES[wire.api]):
        return
    found = f"the keys {', '.join(keys)}" if keys else "no keys"
    wanted = " and ".join(sorted(_BODIES[wire.api][0], reverse=True))
    raise InvalidInput(
        f"{mix.name}, line {asked.line} has {found}; a line is text, query and documents, or messages alone, "
        f"or a whole body with {wanted}, as --api {wire.api} takes it"
    )


def _no_place(wire: Wire, asked: Asked) -> InvalidInput:
    fitting = {Texts: "openai or native", Pairs: "rerank or native", Chat: "chat", Raw: "any"}[type(asked)]
    return InvalidInput(f"the {wire.api} API has no place for {type(asked).__name__.lower()}; use --api {fitting}")
