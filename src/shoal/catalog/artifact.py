"""A model whose files are in the object store: pushed, not added. A server fetches it when it is asked for."""

from pathlib import Path

from shoal.catalog import Artifact, Taking
from shoal.protocol.errors import InvalidInput


def fetch(source: Artifact, into: Path, taking: Taking) -> str:
    """Raises InvalidInput: nothing is to be added."""
    raise InvalidInput(
        "this model was pushed; every server that has its object store (`--objects`) serves it without `shoal add`"
    )
