"""What a method and a path mean: a dialect's route, and the model where the path names it. Pure."""

import functools

import msgspec

from shoal.dialects import Dialect, Route, all_dialects
from shoal.protocol.errors import MethodNotAllowed, NotFound

_MODEL = "{model}"


class Target(msgspec.Struct, frozen=True):
    """`model` is "" where the body names it."""

    dialect: Dialect
    route: Route
    model: str = ""


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
            place[route.method] = Target(dialect, route)
    return exact, sorted(prefixes.items(), key=lambda entry: -len(entry[0]))


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
