"""What a method and a path mean: a dialect's route, and the model where the path names it. Pure.

Where dialects share a path, the body's top-level keys decide, once it is here.
"""

import functools

import msgspec

from shoal.dialects import Dialect, Route, all_dialects
from shoal.dialects.bodies import peek_keys
from shoal.protocol.errors import MethodNotAllowed, NotFound

_MODEL = "{model}"


class Target(msgspec.Struct, frozen=True):
    """`model` is "" where the body names it. `rivals` share the path, and each knows its own by a key."""

    dialect: Dialect
    route: Route
    model: str = ""
    rivals: tuple["Target", ...] = ()

    def of(self, body: bytes) -> "Target":
        """Whose this body is."""
        if not self.rivals:
            return self
        keys = peek_keys(body)
        found = (rival for rival in self.rivals if any(key in keys for key in rival.route.keys))
        return next(found, self)


@functools.cache
def _table() -> tuple[dict[str, dict[str, Target]], list[tuple[str, dict[str, Target]]]]:
    """Literal paths, and prefixes that end before `{model}`, longest first; each by method."""
    exact: dict[str, dict[str, Target]] = {}
    prefixes: dict[str, dict[str, Target]] = {}
    for dialect in all_dialects().values():
        for route in dialect.routes:
            named = route.path.endswith(_MODEL)
            places = prefixes if named else exact
            place = places.setdefault(route.path.removesuffix(_MODEL), {})
            place[route.method] = _joined(place.get(route.method), Target(dialect, route))
    return exact, sorted(prefixes.items(), key=lambda entry: -len(entry[0]))


def _joined(known: Target | None, new: Target) -> Target:
    """The target of a path that both are for: the one without keys, with all others as its rivals."""
    if known is None:
        return new
    one, other = (known, new) if new.route.keys else (new, known)
    assert other.route.keys, f"{one.route.path} is claimed twice"
    alone = msgspec.structs.replace(other, rivals=())
    return msgspec.structs.replace(one, rivals=(*one.rivals, *other.rivals, alone))


def find(method: str, path: str) -> Target:
    """Raises NotFound, or MethodNotAllowed where the path exists with other methods."""
    exact, prefixes = _table()
    methods = exact.get(path)
    model = ""
    if methods is None:
        for prefix, candidates in prefixes:
            if path.startswith(prefix) and len(path) > len(prefix):
                methods, model = candidates, path[len(prefix) :]
                break
    if methods is None:
        raise NotFound(f"no route {path[:200]!r}")
    target = methods.get(method)
    if target is None:
        raise MethodNotAllowed(f"{path[:200]} takes {', '.join(sorted(methods))}", allow=sorted(methods))
    return msgspec.structs.replace(target, model=model) if model else target
