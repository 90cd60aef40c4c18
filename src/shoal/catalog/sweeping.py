"""What may go from the object store of pushed models. Whoever pushes at the same time is not disturbed, as long as
a push takes less time than what is swept is old.
"""

import time
from collections.abc import Iterable

from shoal.catalog.chunks import BLOBS, UPLOADS, blob_key
from shoal.catalog.objects import Found
from shoal.catalog.registry import ARTIFACTS, Registry
from shoal.protocol.errors import InternalError, ModelLoadFailed, NotFound


async def sweep(registry: Registry, older_than_s: float) -> int:
    """Remove what is older than that and no version of any name needs; how many objects.

    1. What writers that died have left. 2. Uploads to which nothing was added lately. 3. Artifacts. 4. Blobs of no
    artifact that is left. Raises InternalError, with nothing of 3 and 4 removed, where some ledger or manifest
    cannot be read, so that it is not known what is needed.
    """
    objects, before = registry.objects, time.time() - older_than_s
    removed = await objects.sweep(older_than_s)  # 1
    for key in _stale_uploads(await objects.list(UPLOADS), before):  # 2
        await objects.delete(key)
        removed += 1
    blobs = [found for found in await objects.list(BLOBS) if found.modified < before]
    artifacts = await objects.list(ARTIFACTS)
    named = await _named(registry)
    for found in artifacts:  # 3
        if found.modified < before and _digest(found) not in named:
            await objects.delete(found.key)
            removed += 1
    needed = await _needed(registry)
    for found in blobs:  # 4
        if found.key not in needed:
            await objects.delete(found.key)
            removed += 1
    return removed


def _stale_uploads(chunks: Iterable[Found], before: float) -> list[str]:
    """Of uploads whose youngest chunk is that old; the last chunk of each first."""
    uploads: dict[str, list[Found]] = {}
    for chunk in chunks:
        uploads.setdefault(chunk.key.rpartition("/")[0], []).append(chunk)
    stale = [upload for upload in uploads.values() if max(chunk.modified for chunk in upload) < before]
    return [chunk.key for upload in stale for chunk in reversed(upload)]


async def _named(registry: Registry) -> set[str]:
    """The digests of all versions."""
    states = await registry.names()
    if registry.unreadable:
        raise InternalError(
            f"no model is swept as long as a ledger cannot be read: {', '.join(sorted(registry.unreadable)[:3])}",
            why=registry.unreadable,
        )
    return {version.digest for state in states.values() for version in state.versions.values()}


async def _needed(registry: Registry) -> set[str]:
    """The keys of the blobs of every artifact, also of one that came a moment ago."""
    needed: set[str] = set()
    for found in await registry.objects.list(ARTIFACTS):
        try:
            manifest = await registry.manifest(_digest(found))
        except NotFound:
            continue  # removed meanwhile
        except ModelLoadFailed as error:
            raise InternalError(f"no blob is swept: {error}") from error
        needed |= {blob_key(file.sha256) for file in manifest.files}
    return needed


def _digest(found: Found) -> str:
    return found.key.removeprefix(ARTIFACTS).removesuffix(".json")
