"""What is asked under load: seeded mixes of made-up texts, or the user's own lines. Knows no API and no model.

| mix | what one request holds |
|---|---|
| short | a text of 8 to 16 tokens, evenly spread |
| lognormal | a text of lognormal length: median 30 tokens, sigma 0.8, at most 250 |
| batch | 32 texts of 8 to 16 tokens |

Tokens are those of a BERT vocabulary, its two markers included: every word of `WORDS` is one of them. For pairs,
a query of the length of a short text stands before what the mix holds; for chat, the text is what the user says.
"""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from shoal.protocol.errors import InvalidInput

MARKERS = 2
MEDIAN, SIGMA, LONGEST = 30, 0.8, 250
BATCH = 32
REQUESTS = 4096  # different ones of a mix of single texts; 256 of one of batches

_ENGLISH = """
the of and to in is was for on that with as by at from his her it an were which this be or has had first one
their its new after but who not they have two been other when there all during into school time may years more
most only over city some world would where later up such used many can state about national out known then
made between under part family since game team year season before while both well south north west river house
water road town church music film book song number group company business work market power light black white
red green long small large high old great little open early late line field land sea mountain island lake tree
street wall garden winter summer morning evening night day week month people men women children mother father
brother sister friend king war peace law court police doctor teacher student science history art story word
letter paper language name food bread fish fruit wine milk salt sugar table chair door window room bed floor
fire wind rain snow sun star sky horse dog cat
"""
WORDS = _ENGLISH.split()

Shape = Literal["texts", "pairs", "chat"]
Lengths = Callable[[random.Random], int]


class Texts(msgspec.Struct, frozen=True):
    texts: tuple[str, ...]


class Pairs(msgspec.Struct, frozen=True):
    query: str
    documents: tuple[str, ...]


class Chat(msgspec.Struct, frozen=True):
    messages: tuple[dict[str, Any], ...]


class Raw(msgspec.Struct, frozen=True):
    """A request's body as it is to be sent, and the line that it stands in, counted from 1."""

    body: bytes
    line: int


Asked = Texts | Pairs | Chat | Raw


class Mix(msgspec.Struct, frozen=True):
    """`what` says in words what is asked; `seed` is None for a user's own lines, which are taken as they stand."""

    name: str
    what: str
    asked: tuple[Asked, ...]
    seed: int | None = None


def short(rng: random.Random) -> int:
    """Tokens of a short text."""
    return rng.randint(8, 16)


def lognormal(rng: random.Random) -> int:
    """Tokens of a text as they come in practice: most are short, some long."""
    return min(LONGEST, max(MARKERS + 1, round(rng.lognormvariate(math.log(MEDIAN), SIGMA))))


LENGTHS: dict[str, tuple[Lengths, int, str]] = {
    "short": (short, 1, "of 8 to 16 tokens"),
    "lognormal": (lognormal, 1, f"of lognormal length, median {MEDIAN} tokens, at most {LONGEST}"),
    "batch": (short, BATCH, "of 8 to 16 tokens"),
}


def texts_of(lengths: Lengths, count: int, seed: int) -> list[str]:
    """`count` made-up texts; the same for the same seed on every machine."""
    rng = random.Random(seed)  # noqa: S311 - texts, no secret
    return [_text(rng, lengths(rng)) for _ in range(count)]


def mix(name: str, seed: int = 1, *, shape: Shape = "texts", per_request: int = 0) -> Mix:
    """One of the mixes above, `per_request` texts or documents a request (0: as the mix has it).

    Raises InvalidInput for a name that is none of them.
    """
    if name not in LENGTHS:
        raise InvalidInput(f"no mix named {name!r}; there are {', '.join(LENGTHS)}")
    lengths, size, words = LENGTHS[name]
    size = per_request or size
    rng = random.Random(seed)  # noqa: S311 - texts, no secret
    asked = [_asked(rng, lengths, size, shape) for _ in range(max(256, REQUESTS // size))]
    before = {"texts": "", "pairs": "a query and ", "chat": "one turn of "}[shape]
    counted = f"{size} texts" if size > 1 else "one text"
    return Mix(name, f"{before}{counted} {words}; {len(asked)} different requests", tuple(asked), seed)


def read_lines(path: Path) -> Mix:
    """A user's own requests, one JSON object a line: {"text": one or a list}, {"query", "documents"} or
    {"messages"}; any other object is a body, sent as it is. Raises InvalidInput that names the line, OSError.
    """
    asked: list[Asked] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                found = _read(line, number)
            except (msgspec.MsgspecError, UnicodeDecodeError) as e:
                raise InvalidInput(f"{path}, line {number}: {e}") from e
            if asked and type(found) is not type(asked[0]):
                what, other = _KIND_WORDS[type(found)], _KIND_WORDS[type(asked[0])]
                keys = f" with the keys {', '.join(keys_of(found.body))}" if isinstance(found, Raw) else ""
                raise InvalidInput(
                    f"{path}, line {number} is {what}{keys}, but before it stands {other}; give one kind in a file"
                )
            asked.append(found)
    if not asked:
        raise InvalidInput(f"{path} holds no requests")
    return Mix(path.name, f"{len(asked)} requests of {path.name}", tuple(asked))


def keys_of(body: bytes) -> list[str]:
    """Of a JSON object, as they stand."""
    return list(msgspec.json.decode(body, type=dict[str, msgspec.Raw]))


def _text(rng: random.Random, tokens: int) -> str:
    return " ".join(rng.choices(WORDS, k=tokens - MARKERS))


def _asked(rng: random.Random, lengths: Lengths, size: int, shape: Shape) -> Asked:
    texts = tuple(_text(rng, lengths(rng)) for _ in range(size))
    if shape == "texts":
        return Texts(texts)
    if shape == "pairs":
        return Pairs(_text(rng, short(rng)), texts)
    return Chat(({"role": "user", "content": "\n".join(texts)},))


class _TextLine(msgspec.Struct, forbid_unknown_fields=True):
    text: str | list[str]


class _PairsLine(msgspec.Struct, forbid_unknown_fields=True):
    query: str
    documents: list[str]


class _ChatLine(msgspec.Struct, forbid_unknown_fields=True):
    messages: list[dict[str, Any]]


_KINDS: dict[frozenset[str], type[_TextLine | _PairsLine | _ChatLine]] = {
    frozenset(["text"]): _TextLine,
    frozenset(["query", "documents"]): _PairsLine,
    frozenset(["messages"]): _ChatLine,
}


_KIND_WORDS: dict[type, str] = {Texts: "a text", Pairs: "a pair", Chat: "a chat", Raw: "a whole body"}


def _read(line: bytes, number: int) -> Asked:
    fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    kind = _KINDS.get(frozenset(fields))
    if kind is None:
        return Raw(line.strip(), number)
    given = msgspec.json.decode(line, type=kind)
    if isinstance(given, _TextLine):
        return Texts((given.text,) if isinstance(given.text, str) else tuple(given.text))
    if isinstance(given, _PairsLine):
        return Pairs(given.query, tuple(given.documents))
    return Chat(tuple(given.messages))
