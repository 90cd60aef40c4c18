"""Which values a field takes, found in the type that a body is read as: for complaints, which should name them."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import inspect

_STEP = re.compile(r"\[\d+\]|\[\.\.\.\]|[^.\[\]]+")


def allowed(body: Any, place: str) -> tuple[str, ...]:
    """The values that the field at `place` (as `params.output_types[0]`) of type `body` may have, if they are few.

    () where any value of its type will do, or there is no such field.
    """
    found = list(_plain(inspect.type_info(body)))
    for step in _STEP.findall(place):
        found = [each for kind in found for next_one in _inside(kind, step) for each in _plain(next_one)]
    return tuple(str(value) for kind in found if isinstance(kind, inspect.LiteralType) for value in kind.values)


def _plain(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _plain(each)
    elif isinstance(kind, inspect.Metadata):
        yield from _plain(kind.type)
    else:
        yield kind


def _inside(kind: inspect.Type, step: str) -> Iterator[inspect.Type]:
    if step.startswith("["):
        if isinstance(kind, inspect.ListType):
            yield kind.item_type
    elif isinstance(kind, inspect.StructType):
        yield from (field.type for field in kind.fields if field.encode_name == step)
