"""Whether two processes have the same object store: a random id in it, made by the first who asks."""

import secrets

from shoal.catalog.objects import IDENTITY, NotThere, Objects


async def identity(objects: Objects) -> str:
    """Raises StorageUnavailable."""
    while True:
        try:
            return (await objects.get(IDENTITY)).decode("ascii", "replace")
        except NotThere:
            await objects.create(IDENTITY, secrets.token_hex(16).encode())
