"""Whether anything may be fetched at all."""

import os


def offline_by(*settings: str) -> str:
    """The first of these settings, or SHOAL_OFFLINE, that forbids it; "" where none does."""
    asked = ("SHOAL_OFFLINE", *settings)
    return next((name for name in asked if os.environ.get(name, "0").lower() not in ("", "0", "false", "no")), "")
