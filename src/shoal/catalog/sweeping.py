"""What may go from the object store of pushed models. Whoever pushes at the same time is not disturbed, as long as
a push takes less time than what is swept is old.
"""

import time
from collections.abc import Iterable

from shoal.catalog.chunks import BLOBS, SENDERS, UPLOADS, blob_key, signed
from shoal.catalog.objects import Found
from shoal.catalog.registry import ARTIFACTS, Registry
from shoal.protocol.errors import InternalError, ModelLoadFailed, NotFound


async def sweep(registry: Registry, older_than_s: float) -> int:
    """Remove what is older than that and no version of any name needs; how many objects.

    1. What writers that died have left. 2. Uploads to which nothing was added lately. 3. Artifacts. 4. Blobs of no
    artifact that is left. 5. Who sent a blob that is gone, or is in a version by now. Raises InternalError, with
    nothing of 3 to 5 removed, where some ledger or manifest cannot be read: it is not known then what is needed.
    """
    objects, before = registry.objects, time.time() - older_than_s
    removed = await objects.sweep(older_than_s)  # 1
    for key in _stale_uploads(await objects.list(UPLOADS), before):  # 2
        await objects.delete(key)
        removed += 1
    blobs, artifacts = await objects.list(BLOBS), await objects.list(ARTIFACTS)
    named = await _named(registry)
    for found in artifacts:  # 3
        if found.modified < before and _digest(found) not in named:
            await objects.delete(found.key)
            removed += 1
    needed = await _needed(registry)
    stale = {found.key for found in blobs if found.modified < before} - _all(needed.values())
    for key in sorted(stale):  # 4
        await objects.delete(key)
        removed += 1
    charged = {found.key for found in blobs} - stale - _all(needed.get(digest, set()) for digest in named)
    for found in await objects.list(SENDERS):  # 5
        if found.modified < before and signed(found.key)[0] not in charged:
            await objects.delete(found.key)
            removed += 1
    return removed


def _all(sets: Iterable[set[str]]) -> set[str]:
    return set().union(*sets)


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


async def _needed(registry: Registry) -> dict[str, set[str]]:
    """The keys of the blobs of every artifact, by its digest; also of one that came a moment ago."""
    needed: dict[str, set[str]] = {}
    for found in await registry.objects.list(ARTIFACTS):
        try:
            manifest = await registry.manifest(_digest(found))
        except NotFound:
            continue  # removed meanwhile
        except ModelLoadFailed as error:
            raise InternalError(f"no blob is swept: {error}") from error
        needed[_digest(found)] = {blob_key(file.sha256) for file in manifest.files}
    return needed


def _digest(found: Found) -> str:
    return found.key.removeprefix(ARTIFACTS).removesuffix(".json")
