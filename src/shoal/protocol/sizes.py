"""Sizes in bytes as words for people, in the decimal units that options take. Pure."""

_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def in_words(size_bytes: float) -> str:
    """`731 bytes`, `2.1 kB`, `90.9 MB`, `1.3 GB`: never 0 of a unit that is too large."""
    for unit, one in _UNITS:
        if size_bytes >= 0.99995 * one:  # what would be written as 1000.0 of the next smaller one
            return f"{size_bytes / one:.1f} {unit}"
    return f"{size_bytes:.0f} byte{'' if size_bytes == 1 else 's'}"
