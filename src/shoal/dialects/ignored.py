"""Which settings of a native request nobody reads: misspelt ones, and those of another server.

They are told in a header and do no harm, because clients of sie-server set some for all their requests, and that
server lets them pass.
"""

from collections.abc import Iterable

import msgspec

from shoal.dialects.bodies import ABSENT, Decoder, Format, decode
from shoal.dialects.native_bodies import EncodeOptions, Params, ScoreOptions

_Fields = dict[str, msgspec.Raw]
_READ = {
    "encode": {"params": Params.__struct_fields__, "params.options": EncodeOptions.__struct_fields__},
    "score": {"options": ScoreOptions.__struct_fields__},
}
MOST_NAMES = 8
_LONGEST_NAME = 60


class _Settings(msgspec.Struct, frozen=True):
    params: msgspec.Raw = ABSENT
    options: msgspec.Raw = ABSENT


_decoders: dict[Format, tuple[Decoder[_Settings], Decoder[_Fields]]] = {
    "json": (msgspec.json.Decoder(_Settings), msgspec.json.Decoder(_Fields)),
    "msgpack": (msgspec.msgpack.Decoder(_Settings), msgspec.msgpack.Decoder(_Fields)),
}


def ignored(route: str, form: Format, body: bytes) -> tuple[str, ...]:
    """Places of what `body` says and `route` does not read, as `params.options.is_qury`.

    Raises InvalidInput for names that are no text.
    """
    settings, fields = _decoders[form]
    found = decode(settings, body)
    given = {name: raw for name in ("params", "options") if _says(raw := getattr(found, name))}
    if not given:
        return ()
    places: list[str] = []
    for place, known in _READ[route].items():
        raw = given.pop(place, ABSENT)
        said = decode(fields, bytes(raw)) if _says(raw) else {}
        places += [f"{place}.{name}" for name in said if name not in known]
        if "options" in said and "options" in known:
            given[f"{place}.options"] = said["options"]
    return (*places, *given)


def header(places: Iterable[str]) -> str:
    """At most so many, each cut and in ASCII, as a header's value."""
    listed = list(places)
    shown = [ascii(place)[1:-1][:_LONGEST_NAME] for place in listed[:MOST_NAMES]]
    return ", ".join(shown) + (f" and {len(listed) - MOST_NAMES} more" if len(listed) > MOST_NAMES else "")


def _says(raw: msgspec.Raw) -> bool:
    return bytes(raw) not in (b"", b"null", b"\xc0")
