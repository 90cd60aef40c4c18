"""Names out of a list with commas, on a command line."""

from collections.abc import Sequence


def chosen(said: str, known: Sequence[str]) -> list[str]:
    """In the order of `known`. Exits with a sentence where one is not known."""
    names = [name.strip() for name in said.split(",") if name.strip()]
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    return [name for name in known if name in names]
