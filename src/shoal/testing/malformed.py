"""Request bodies that are wrong in thousands of ways, the same for the same seed.

Each starts from a valid request and is spoilt once or twice: in its headers, its bytes, or one value in it.
A few come out valid all the same (a flipped bit in a text, a null where null is allowed); none may cost a
server more than a 4xx. Knows the shapes of the routes that compute and that push, not who decodes them.
"""

import json
import random
from collections.abc import Iterator
from typing import Any

import msgspec

JSON = "application/json"
MSGPACK = "application/msgpack"

_ENCODE = {
    "items": [{"id": "a", "text": "first text", "metadata": {"k": 1}}, "second text"],
    "params": {
        "output_types": ["dense"],
        "output_dtype": "float32",
        "instruction": "Find: ",
        "options": {"is_query": True, "normalize": True, "truncate": "end", "dimensions": 4, "profile": "default"},
    },
}
_SCORE = {
    "query": {"id": "q", "text": "what is it"},
    "items": [{"id": "a", "text": "first text"}, "second text"],
    "instruction": "Rank: ",
    "options": {"truncate": "end", "raw": False, "profile": ""},
}
_EMBEDDINGS = {
    "model": "org/m",
    "input": ["first text", "second text"],
    "encoding_format": "float",
    "dimensions": 4,
    "input_type": "query",
    "truncate": "end",
}
_TOKENS = {"model": "org/m", "input": [[101, 7, 102], [5]], "encoding_format": "base64"}
_RERANK = {
    "model": "org/m",
    "query": "what is it",
    "documents": ["first text", {"text": "second text"}],
    "top_n": 1,
    "return_documents": True,
    "raw_scores": False,
}

_MAXSIM = {
    "query": {"multivector": [[1.0, 0.5]]},
    "items": [{"id": "a", "multivector": [[1.0, -0.5], [0.25, 2.0]]}, {"text": "second text"}],
}
_TEI = {
    "inputs": ["first text", "second text"],
    "truncate": True,
    "truncation_direction": "Right",
    "normalize": True,
    "dimensions": 4,
}
_TEI_PLAIN = {"inputs": ["first text", "second text"], "truncate": True, "truncation_direction": "Left"}
_SIMILARITY = {
    "inputs": {"source_sentence": "first text", "sentences": ["second text", "third text"]},
    "parameters": {"truncate": True, "prompt_name": None},
}
_TOKENIZE = {"inputs": ["first text", "second text"], "add_special_tokens": True, "prompt_name": None}
_PREDICT = {"inputs": [["what is it", "first text"], ["second", "text"]], "truncate": True, "raw_scores": False}
_TEXTS = {
    "query": "what is it",
    "texts": ["first text", "second text"],
    "raw_scores": False,
    "return_text": True,
    "truncate": True,
}

_COHERE_EMBED = {
    "model": "org/m",
    "texts": ["first text", "second text"],
    "input_type": "search_query",
    "embedding_types": ["float", "int8"],
    "output_dimension": 4,
    "truncate": "END",
}
_COHERE_INPUTS = {"model": "org/m", "inputs": [{"content": [{"type": "text", "text": "first text"}]}]}
_SHA256 = "ab" * 32
_FILES = [{"path": "config.json", "sha256": _SHA256, "size_bytes": 2}]
_PUSH = {
    "name": "team/never",
    "files": [*_FILES, {"path": "model.safetensors", "sha256": "cd" * 32, "size_bytes": 1000}],
    "base": "org/m",
    "reference": [
        {"text": "first text", "values": [0.5, 1.0]},
        {"text": "second", "pair": "text", "values": [1.0]},
    ],
    "note": "a note",
    "facts": {"pooling": "mean", "kinds": ["dense"], "prompts": {"query": "Find: "}},
}

TEMPLATES: dict[str, tuple[dict[str, Any], ...]] = {
    "encode": (_ENCODE,),
    "score": (_SCORE, _SCORE, _MAXSIM),
    "embeddings": (_EMBEDDINGS, _TOKENS),
    "rerank_v1": (_RERANK,),
    "rerank_v2": (_RERANK,),
    "rerank": (_RERANK,),
    "embed_v1": (_COHERE_EMBED,),
    "embed_v2": (_COHERE_EMBED, _COHERE_INPUTS),
    "embed": (_TEI, _TEI | {"inputs": "a text"}),
    "embed_root": (_TEI,),
    "embed_all": (_TEI_PLAIN,),
    "embed_sparse": (_TEI_PLAIN,),
    "similarity": (_SIMILARITY,),
    "tokenize": (_TOKENIZE, _TOKENIZE | {"inputs": "a text"}),
    "predict": (_PREDICT, _PREDICT | {"inputs": ["what is it", "first text"]}),
    "rerank_tei": (_TEXTS,),
    "uploads": ({"files": _PUSH["files"]},),
    "push": (_PUSH,),
    "alias": ({"version": 1, "note": "a note"},),
    "rollback": ({"alias": "prod", "version": 1, "note": "a note"},),
}
"""By route name: the valid requests that are spoilt."""

_PACKED = ("encode", "score", "uploads", "push", "alias", "rollback")
"""Routes that take msgpack too."""

_MARK = "<spoil>"
_JSON_VALUES = (
    *(b"true", b"0", b"-1", b"1.5", b"1e400", b"-1e-400", b"NaN", b"Infinity", b"9" * 5000, b"9" * 30, b"null"),
    *(b'""', b'"x"', b'" "', b'"\\ud800"', b'"\xff\xfe"', b'"\xed\xa0\x80"', b'"\x00"', b'"\\x41"', b'"open'),
    *(b"[]", b"[[]]", b"[null]", b'[1,"a"]', b"[1,]", b"[true]", b"[[[1]]]", b"{}", b'{"a":1}', b"{1:2}", b'{"a"'),
    *(b"", b",", b"'single'", b"undefined", b"-", b"01", b"+1", b"/**/", b"\x00", b"\\", b'{"text":[]}'),
    *(b"[" * 100_000, b"[" * 50_000 + b"]" * 50_000, b'{"a":' * 50_000 + b"1" + b"}" * 50_000, b"[" * 300),
    *(b'"' + b"x" * 100_000 + b'"' + b"}", b"[" + b"1," * 5000 + b"1]", b"[" + b'"a",' * 3000 + b'"a"]'),
)
_MSGPACK_VALUES = (
    *(b"\xc0", b"\xc1", b"\xc3", b"\x00", b"\xff", b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"),
    *(b"\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00", b"\xcf" + b"\xff" * 8, b"\xd3\x80" + b"\x00" * 7),
    *(b"\xa0", b"\xa1x", b"\xa1\xff", b"\xa3\xed\xa0\x80", b"\xbf", b"\xdb\xff\xff\xff\xff", b"\xd9\xff"),
    *(b"\xc4\x01a", b"\xc4\x00", b"\xc6\xff\xff\xff\xff", b"\xd4\x05\x00", b"\xd6\xff\x00\x00\x00\x00", b"\xc9"),
    *(b"\x90", b"\x91\x90", b"\x91\xc0", b"\x92\x01\xa1a", b"\xdd\xff\xff\xff\xff", b"\xdc\x00\x05", b"\x91\xc3"),
    *(b"\x80", b"\x81\xa1a\x01", b"\x81\x01\x02", b"\x81\xc4\x01a\x01", b"\x81\x90\x01", b"\xdf\xff\xff\xff\xff"),
    *(b"\x91" * 100_000, b"\x91" * 50_000 + b"\xc0", b"\x81\xa1a" * 50_000 + b"\xc0", b"\x81" * 300),
    msgspec.msgpack.encode({b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [1], b"data": b"abcd"}),
    msgspec.msgpack.encode({b"nd": True, b"type": "|O", b"kind": b"O", b"data": b"\x80\x04N."}),
)
_CONTENT_TYPES = (
    *("", "text/plain", "text/html", "application/xml", "application/x-www-form-urlencoded", "image/png"),
    *("multipart/form-data; boundary=x", "application/octet-stream", "*/*", "json", "a" * 5000, ";;;"),
    *("application/json;charset=utf-16", "application/jsonp", "application/msgpackx", JSON, MSGPACK),
)
_WHOLE = (
    *(b"", b" ", b"\n", b"null", b"[]", b"{}", b'"a"', b"3", b"true", b"\x80", b"\x90", b"\xc0", b"\x00", b"{"),
    *(
        b"\xef\xbb\xbf{}",
        b"{}{}",
        b"\x80\x80",
        b"--x\r\n\r\n",
        b"a=b&c=d",
        b"<a/>",
        b"\x1f\x8b\x08\x00",
        b"\xff" * 99,
    ),
)


def malformed(route_name: str, seed: int) -> tuple[dict[str, str], bytes]:
    """Headers and body of request `seed` for a route named in TEMPLATES."""
    rng = random.Random(f"{route_name}:{seed}")  # to be repeated, not to be secret
    template = rng.choice(TEMPLATES[route_name])
    packed = route_name in _PACKED and rng.random() < 0.5
    content_type = MSGPACK if packed else JSON
    body = _written(template, packed)
    match rng.choices(("value", "field", "bytes", "whole", "type"), weights=(60, 8, 22, 4, 6))[0]:
        case "value":
            body = _with_wrong_value(template, packed, rng)
        case "field":
            body = _without_a_field(template, packed, rng)
        case "bytes":
            body = _with_wrong_bytes(body, rng)
        case "whole":
            body = rng.choice(_WHOLE) if rng.random() < 0.5 else rng.randbytes(rng.randint(1, 200))
        case "type":
            # Broken as well, so that a type which happens to be right makes no valid request.
            content_type = rng.choice(_CONTENT_TYPES)
            body = _with_wrong_bytes(body, rng)
    return ({"content-type": content_type} if content_type else {}), body


def _written(value: Any, packed: bool) -> bytes:
    return msgspec.msgpack.encode(value) if packed else json.dumps(value).encode()


def _with_wrong_value(template: dict[str, Any], packed: bool, rng: random.Random) -> bytes:
    """One or two values in the request, at any depth, replaced by the bytes of something else."""
    spoilt: Any = template
    count = rng.randint(1, 2)
    for _ in range(count):
        spoilt = _replaced(spoilt, rng.choice(list(_paths(spoilt))), _MARK)
    body, mark = _written(spoilt, packed), _written(_MARK, packed)
    for _ in range(count):
        body = body.replace(mark, rng.choice(_MSGPACK_VALUES if packed else _JSON_VALUES), 1)
    return body


def _without_a_field(template: dict[str, Any], packed: bool, rng: random.Random) -> bytes:
    """The request without its last and most needed fields, or with one of them under another name."""
    fields = list(template)
    gone = rng.sample(fields, rng.randint(1, len(fields)))
    again = rng.choice(("", "x" * rng.randint(1, 50), "Items", "__proto__", "inputs", "texts", "\0"))
    spoilt = {key: value for key, value in template.items() if key not in gone}
    return _written(spoilt | ({again: template[gone[0]]} if again else {}), packed)


def _with_wrong_bytes(body: bytes, rng: random.Random) -> bytes:
    """The body cut short, with bits flipped, with bytes put in or left out, or followed by more."""
    at = rng.randrange(len(body))
    match rng.choice(("cut", "flip", "insert", "drop", "follow", "swap")):
        case "cut":
            return body[:at]
        case "flip":
            flipped = bytearray(body)
            for _ in range(rng.randint(1, 8)):
                flipped[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
            return bytes(flipped)
        case "insert":
            return body[:at] + rng.randbytes(rng.randint(1, 9)) + body[at:]
        case "drop":
            return body[:at] + body[at + rng.randint(1, 9) :]
        case "follow":
            return body + (rng.randbytes(rng.randint(1, 9)) if at % 2 else body)
        case _:
            return body[at:] + body[:at]


Path = tuple[str | int, ...]


def _paths(value: Any, before: Path = ()) -> Iterator[Path]:
    """The place of every value inside `value`."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield (*before, key)
        yield from _paths(each, (*before, key))


def _replaced(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    key, *rest = path
    copy: Any = value.copy()
    copy[key] = _replaced(value[key], tuple(rest), new)
    return copy
