"""Files that are being uploaded: their chunks in the object store, so that an upload goes on through any gateway,
until a file is complete and its hash is right.

    uploads/<sha256>.<size>[.<sender>]/<offset>   a chunk, where the one before it ends
    blobs/<sha256>                                a file's content
    senders/<sha256>.<sender>                     empty: that is who sent it

Two who upload the same file with one key add to the same chunks. Who has another key has chunks apart: what one
sends wrongly, by mistake or not, spoils nobody else's file. Chunks that do not join, left by one who was late, are
not counted and go with the others.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator

from shoal.catalog.manifests import File
from shoal.catalog.objects import Found, NotThere, Objects
from shoal.protocol.errors import Conflict, InvalidInput, PayloadTooLarge

UPLOADS, BLOBS, SENDERS = "uploads/", "blobs/", "senders/"
CHUNK_BYTES = 8 * 1024 * 1024
"""The most that one call of `receive` takes."""
MOST_CHUNKS = 4096
_SHA256 = re.compile("[0-9a-f]{64}")
_MAX_HEADER_BYTES = 100_000_000


class _WrongHash(Exception):
    """What the chunks are is no file that anybody named."""


class Chunks:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._joining: dict[str, asyncio.Task[int]] = {}

    async def is_blob(self, file: File) -> bool:
        """Raises InvalidInput where the content is here and has another size."""
        size = await self._objects.size_of(blob_key(file.sha256))
        if size is not None and size != file.size_bytes:
            raise InvalidInput(
                f"{file.path} is said to have {file.size_bytes} bytes; what has that hash has {size}"
            )
        return size is not None

    async def here(self, file: File, sender: str) -> int:
        """How much of the file is here: what is in the sender's chunks. Those that make it up become its blob, if
        whoever sent the last of them died before that."""
        folder = _folder(file, sender)
        chunks = await self._chunks(folder)
        if _end(chunks) == file.size_bytes:
            return await self._join(file, folder, chunks, sender)
        return file.size_bytes if await self.is_blob(file) else _end(chunks)

    async def receive(self, file: File, offset: int, data: bytes, sender: str) -> int:
        """See Registry.receive."""
        _check(file, offset, data)
        here = await self.here(file, sender)
        if here == file.size_bytes:
            return here
        if len(data) == file.size_bytes:
            return await self._whole(file, data, sender)
        if here != offset:
            raise _not_next(file, here)
        if not data:
            return here
        is_ours = await self._objects.create(f"{_folder(file, sender)}{offset:012}", data)
        if is_ours and offset + len(data) < file.size_bytes:
            return offset + len(data)
        here = await self.here(file, sender)
        if here == file.size_bytes:
            return here
        raise _not_next(file, here)

    async def _whole(self, file: File, data: bytes, sender: str) -> int:
        if await asyncio.to_thread(_sha256, data) != file.sha256:
            raise _wrong(file)
        await self._sign(file, sender)
        await self._objects.put(blob_key(file.sha256), data)
        return len(data)

    async def _sign(self, file: File, sender: str) -> None:
        """Before its blob is there: none that takes up room is nobody's."""
        if sender:
            await self._objects.put(f"{SENDERS}{file.sha256}.{sender}", b"")

    async def _join(self, file: File, folder: str, chunks: list[Found], sender: str) -> int:
        """Chunks that make up the whole file become its blob: once however many ask, and also when they have left,
        for a large file takes longer than a client may wait."""
        joining = self._joining.get(folder)
        if joining is None:
            joining = self._joining[folder] = asyncio.create_task(self._joined(file, folder, chunks, sender))
            joining.add_done_callback(lambda done: self._ended(folder, done))
        return await asyncio.shield(joining)

    def _ended(self, folder: str, joining: "asyncio.Task[int]") -> None:
        del self._joining[folder]
        if not joining.cancelled():
            joining.exception()  # whoever still waits is told

    async def _joined(self, file: File, folder: str, chunks: list[Found], sender: str) -> int:
        """The last chunk goes first, so that those that are left are always the file's beginning."""
        await self._sign(file, sender)
        try:
            await self._objects.put_parts(blob_key(file.sha256), self._parts(file, chunks))
        except _WrongHash:
            await self._discard(folder)
            raise _wrong(file) from None
        except NotThere:  # somebody else has joined them, or found them wrong
            if await self.is_blob(file):
                return file.size_bytes
            raise _not_next(file, _end(await self._chunks(folder))) from None
        await self._discard(folder)
        return file.size_bytes

    async def _parts(self, file: File, chunks: list[Found]) -> AsyncIterator[bytes]:
        digest = hashlib.sha256()
        for chunk in chunks:
            data = await self._objects.get(chunk.key)
            await asyncio.to_thread(digest.update, data)
            yield data
        if digest.hexdigest() != file.sha256:
            raise _WrongHash

    async def _chunks(self, folder: str) -> list[Found]:
        """Those that join, from the file's beginning."""
        joined: list[Found] = []
        end = 0
        for found in await self._objects.list(folder):
            if found.key == f"{folder}{end:012}":
                joined.append(found)
                end += found.size_bytes
        return joined

    async def _discard(self, folder: str) -> None:
        for found in reversed(await self._objects.list(folder)):
            await self._objects.delete(found.key)


def blob_key(sha256: str) -> str:
    return f"{BLOBS}{sha256}"


def sender_of(chunk_key: str) -> str:
    """ "" where nobody was asked for a key."""
    return chunk_key.rpartition("/")[0].removeprefix(UPLOADS).partition(".")[2].partition(".")[2]


def signed(key: str) -> tuple[str, str]:
    """The blob's key and the sender that a key in `SENDERS` names."""
    sha256, _, sender = key.removeprefix(SENDERS).partition(".")
    return blob_key(sha256), sender


def _check(file: File, offset: int, data: bytes) -> None:
    """Raises InvalidInput, PayloadTooLarge."""
    if not _SHA256.fullmatch(file.sha256):
        raise InvalidInput(f"{file.path}: a sha256 is 64 small hexadecimal digits")
    if len(data) > CHUNK_BYTES:
        raise PayloadTooLarge(f"a chunk has at most {CHUNK_BYTES} bytes, this one {len(data)}", limit=CHUNK_BYTES)
    if offset < 0 or offset + len(data) > file.size_bytes:
        raise InvalidInput(
            f"{file.path} has {file.size_bytes} bytes as was announced; {len(data)} at {offset} are none of them"
        )
    is_last = offset + len(data) == file.size_bytes
    if data and not is_last and len(data) < file.size_bytes // MOST_CHUNKS:
        raise InvalidInput(
            f"{file.path} may come in {MOST_CHUNKS} chunks, the last excepted of at least "
            f"{file.size_bytes // MOST_CHUNKS} bytes; this one has {len(data)}"
        )
    if offset == 0 and len(data) >= 8 and file.path.endswith(".safetensors"):
        length = int.from_bytes(data[:8], "little")
        if not 2 <= length <= min(file.size_bytes - 8, _MAX_HEADER_BYTES) or data[8:9] not in (b"{", b""):
            raise InvalidInput(f"{file.path} is not a safetensors file")


def _folder(file: File, sender: str) -> str:
    assert sender.isalnum() or not sender
    return f"{UPLOADS}{file.sha256}.{file.size_bytes}{'.' if sender else ''}{sender}/"


def _end(chunks: list[Found]) -> int:
    return sum(chunk.size_bytes for chunk in chunks)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _not_next(file: File, offset: int) -> Conflict:
    return Conflict(f"of {file.path} {offset} bytes are here; go on from there", offset=offset)


def _wrong(file: File) -> InvalidInput:
    return InvalidInput(
        f"what came as {file.path} has not the sha256 {file.sha256}: it changed while it was sent, or was "
        "announced wrongly; nothing of it was kept",
        path=file.path,
    )
