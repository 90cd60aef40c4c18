"""The page at `/`: read-only, self-contained, fed by `/status` every two seconds."""

from importlib import resources


def page() -> bytes:
    return resources.files(__name__).joinpath("page.html").read_bytes()
