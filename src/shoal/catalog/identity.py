"""Whether two processes have the same object store: a random id in it, made by the first who asks."""

import secrets

from shoal.catalog.objects import NotThere, Objects

_KEY = "identity"


async def identity(objects: Objects) -> str:
    """Raises StorageUnavailable."""
    while True:
        try:
            return (await objects.get(_KEY)).decode("ascii", "replace")
        except NotThere:
            await objects.create(_KEY, secrets.token_hex(16).encode())
