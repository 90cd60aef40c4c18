"""Models that were pushed, in an object store that every gateway and node shares: their files by content, and the
ledger that says what each name means.

    blobs/<sha256>           a file's content
    artifacts/<digest>.json  a manifest: which files make a model
    ledger/                  one entry each change of a name (entries.py)
    uploads/                 chunks of files that are not complete yet (chunks.py)
    senders/                 who sent a file: bounded is what somebody sends and makes no model of (unfinished.py)
    damaged/<sha256>         a blob that was not what its name says when somebody read it

Whatever is half-written has no name that anybody reads. Knows nothing of nodes, boards or HTTP.
"""

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from shoal.catalog.abreast import abreast
from shoal.catalog.artifacts import sha256_of
from shoal.catalog.chunks import BLOBS as BLOBS
from shoal.catalog.chunks import CHUNK_BYTES as CHUNK_BYTES
from shoal.catalog.chunks import Chunks, blob_key
from shoal.catalog.entries import Entries
from shoal.catalog.ledger import Change as Change
from shoal.catalog.ledger import NameState as NameState
from shoal.catalog.ledger import Pushed
from shoal.catalog.leftovers import DIGEST
from shoal.catalog.manifests import File as File
from shoal.catalog.manifests import Limits as Limits
from shoal.catalog.manifests import Manifest as Manifest
from shoal.catalog.manifests import check_manifest
from shoal.catalog.names import check_name
from shoal.catalog.objects import NotThere, Objects
from shoal.protocol.errors import Conflict, InvalidInput, ModelLoadFailed, NotFound, PayloadTooLarge

ARTIFACTS, DAMAGED = "artifacts/", "damaged/"
_LOOKS_AT_ONCE = 16
_FETCHES_AT_ONCE = 4


def nobody(name: str) -> bool:
    return False


class Registry:
    def __init__(self, objects: Objects, limits: Limits | None = None) -> None:
        self.objects = objects
        self.limits = limits or Limits()
        self._chunks, self._entries = Chunks(objects), Entries(objects)

    @property
    def unreadable(self) -> dict[str, str]:
        """Why, of the names that the last `names` left out."""
        return self._entries.unreadable

    async def missing(self, manifest: Manifest, sender: str = "") -> dict[str, int]:
        """What is still to be sent: sha256 → bytes of it that `sender` has sent. Files that are complete, and
        empty ones, are left out. Raises InvalidInput, PayloadTooLarge for a manifest that is not taken."""
        check_manifest(manifest, self.limits)
        files = {file.sha256: file for file in manifest.files if file.size_bytes}
        await self._heal(set(files))
        here = await abreast(_LOOKS_AT_ONCE, lambda file: self._chunks.here(file, sender), files.values())
        return {
            file.sha256: size for file, size in zip(files.values(), here, strict=True) if size < file.size_bytes
        }

    async def receive(self, file: File, offset: int, data: bytes, sender: str = "") -> int:
        """The next `data` of a file, at most CHUNK_BYTES; the offset that comes next, the file's size at the end,
        when its hash was right and its blob is there. What one `sender`, the id of a key, has sent of a file is
        apart from what others have. Also for a file that is there already, whatever the offset.
        With the last chunk of several the whole file is read and written once more.

        Raises Conflict, with the right one as its detail `offset`, for another offset than that; InvalidInput for
        more than the file's size, and, with nothing kept, for a hash that is not the file's."""
        return await self._chunks.receive(file, offset, data, sender)

    async def commit(self, manifest: Manifest) -> str:
        """The digest, by which `fetch` finds the files from now on. Raises Conflict where a file is not complete,
        and what `missing` raises."""
        check_manifest(manifest, self.limits)
        for file in manifest.files:
            if not file.size_bytes:
                await self.objects.create(blob_key(file.sha256), b"")
        await self._check_whole(manifest)
        # Anew each time: its age tells a sweep that somebody wants it; the second look, that none had begun.
        await self.objects.put(_artifact_key(manifest.digest), msgspec.json.encode(manifest))
        await self._check_whole(manifest)
        return manifest.digest

    async def manifest(self, digest: str) -> Manifest:
        """Raises NotFound; ModelLoadFailed where it does not have that digest, or is none."""
        if not DIGEST.fullmatch(digest):
            raise NotFound(f"{digest[:64]!r} is no artifact's digest")
        try:
            manifest = msgspec.json.decode(await self.objects.get(_artifact_key(digest)), type=Manifest)
        except NotThere:
            raise NotFound(f"the object store has no artifact {digest}") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ModelLoadFailed(f"the manifest of artifact {digest} is damaged: {error}") from error
        if manifest.digest != digest:
            raise ModelLoadFailed(f"the manifest of artifact {digest} is that of {manifest.digest}")
        return manifest

    async def fetch(self, digest: str, into: Path) -> None:
        """The files of an artifact into a folder, each checked before it gets its name; what is there already, and
        right, is not fetched again. Raises NotFound, and ModelLoadFailed where something is not what the manifest
        says; the next fetch into that folder goes on from what is in it."""
        manifest = await self.manifest(digest)
        try:
            check_manifest(manifest, Limits(2**62, 2**31))
        except (InvalidInput, PayloadTooLarge) as error:
            raise ModelLoadFailed(f"the manifest of artifact {digest} is not to be trusted: {error}") from error

        async def fetch(file: File) -> None:
            await self._fetch(file, into / file.path)

        await abreast(_FETCHES_AT_ONCE, fetch, manifest.files)

    async def names(self) -> dict[str, NameState]:
        """Every name that was ever pushed, also those that were removed since (not `is_there`); sorted. One whose
        ledger cannot be read is left out, and logged."""
        return await self._entries.names()

    async def state(self, name: str) -> NameState:
        """Of a name that nobody pushed too: number 0, and not `is_there`. Raises InternalError for a ledger that
        cannot be read."""
        return await self._entries.state(name)

    async def append(
        self, name: str, change: Change, *, since: int | None = None, taken: Callable[[str], bool] = nobody
    ) -> NameState:
        """Write the next entry of `name`; its state after that. Where another was quicker, the change is judged
        anew, and a push is refused if another digest was pushed meanwhile. `since` is the number of the state that
        a pusher saw when it began, so that the whole of the push counts as meanwhile.

        `taken` says whether a name is that of a model that was not pushed. Raises Conflict, InvalidInput,
        ModelNotFound; what the state was is unchanged then."""
        check_name(name)
        if isinstance(change, Pushed):
            try:
                await self._check_whole(await self.manifest(change.digest))
            except NotFound as error:
                raise Conflict(f"{error}; commit it first") from None
        return await self._entries.append(name, change, since, taken)

    async def _check_whole(self, manifest: Manifest) -> None:
        is_here = await abreast(_LOOKS_AT_ONCE, self._chunks.is_blob, manifest.files)
        lacking = [file.path for file, here in zip(manifest.files, is_here, strict=True) if not here]
        if lacking:
            raise Conflict(
                f"{lacking[0]} is not complete in the object store; send what is missing", missing=lacking
            )

    async def _fetch(self, file: File, target: Path) -> None:
        part = target.with_name(f".{target.name}.part")

        def is_right() -> bool:
            target.parent.mkdir(parents=True, exist_ok=True)
            part.unlink(missing_ok=True)
            return (
                target.is_file() and target.stat().st_size == file.size_bytes and sha256_of(target) == file.sha256
            )

        if await asyncio.to_thread(is_right):
            return
        try:
            came = await self.objects.fetch(blob_key(file.sha256), part)
        except NotThere:
            raise ModelLoadFailed(f"{file.path} is gone from the object store; push the model again") from None
        if came != file.sha256:
            await self.objects.put(f"{DAMAGED}{file.sha256}", b"")
            raise ModelLoadFailed(
                f"{file.path} is damaged in the object store: its sha256 is {came}, not {file.sha256}; push the "
                "model again, which repairs it"
            )
        await asyncio.to_thread(part.replace, target)

    async def _heal(self, wanted: set[str]) -> None:
        """A blob of which somebody said that it is damaged, and which is so, is to be sent again."""
        for found in await self.objects.list(DAMAGED):
            sha256 = found.key.removeprefix(DAMAGED)
            if sha256 in wanted:
                if not await self._is_right(sha256):
                    await self.objects.delete(blob_key(sha256))
                await self.objects.delete(found.key)

    async def _is_right(self, sha256: str) -> bool:
        digest = hashlib.sha256()
        try:
            async for part in self.objects.parts(blob_key(sha256)):
                await asyncio.to_thread(digest.update, part)
        except NotThere:
            return False
        return digest.hexdigest() == sha256


def _artifact_key(digest: str) -> str:
    return f"{ARTIFACTS}{digest}.json"
