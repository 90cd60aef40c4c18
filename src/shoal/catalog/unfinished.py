"""How much of an object store is taken up by what no version of any name needs: chunks of files that are not whole
yet, files of models that were never proved, or were removed. Whoever may push may send such; it is bounded, and so
is each one's part of it, where keys tell them apart.

Counts seldom, and adds what came since. Knows sizes by key; what is swept and when is sweeping's.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from shoal.catalog.chunks import BLOBS, SENDERS, UPLOADS, blob_key, sender_of, signed
from shoal.catalog.registry import ARTIFACTS, Registry
from shoal.catalog.sweeping import sweep
from shoal.protocol.errors import ModelLoadFailed, NotFound, ResourceExhausted, ShoalError, over_limit

COUNTED_FOR_S = 60.0
"""Several gateways take in files: what the others took is known that much later."""
FULL_FOR_S = 2.0
SWEPT_OLDER_S = 3600.0
"""Where there is no room, what nobody went on with for that long goes at once, and not after a day."""


class Taken(msgspec.Struct, frozen=True):
    """Bytes: of all, and by who sent them. What was sent without a key is nobody's."""

    of_all: int
    by_sender: Counter[str]


class Unfinished:
    """For one event loop. The limits are those of `registry.limits`."""

    def __init__(self, registry: Registry, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry, self._clock = registry, clock
        self._taken = Taken(0, Counter())
        self._counted_at: float | None = None
        self._counting: asyncio.Task[None] | None = None
        self._files: dict[str, frozenset[str]] = {}  # by digest: the keys of its blobs

    async def take(self, size_bytes: int, sender: str = "") -> None:
        """So much more comes. Raises ResourceExhausted, naming the limit, where there is no room for it."""
        await self.look(size_bytes, sender)
        by_sender = self._taken.by_sender + Counter({sender: size_bytes} if sender else {})
        self._taken = Taken(self._taken.of_all + size_bytes, by_sender)

    async def look(self, size_bytes: int, sender: str = "") -> None:
        """Whether there is room for so much. Raises ResourceExhausted.

        1. By what is known. 2. Counted anew. 3. Once what is old was swept.
        """
        if self._age_s() < COUNTED_FOR_S and self._refusal(size_bytes, sender) is None:  # 1
            return
        if self._age_s() >= FULL_FOR_S:
            if self._counting is None:
                self._counting = asyncio.create_task(self._count(size_bytes, sender))  # 2, 3
                self._counting.add_done_callback(self._ended)
            await asyncio.shield(self._counting)
        if (refusal := self._refusal(size_bytes, sender)) is not None:
            raise refusal

    def _refusal(self, size_bytes: int, sender: str) -> ShoalError | None:
        """One's own part first: of that one can do something."""
        limits = self._registry.limits
        own, of_all = (size_bytes + taken for taken in (self._taken.by_sender[sender], self._taken.of_all))
        if sender and own > limits.unfinished_bytes_per_key:
            return over_limit(
                ResourceExhausted, f"what the key {sender} sent and is no version of any model", seen=own,
                limit=limits.unfinished_bytes_per_key, setting="--max-unfinished-bytes-per-key", unit="bytes",
            )  # fmt: skip
        if of_all > limits.unfinished_bytes:
            return over_limit(
                ResourceExhausted, "what was sent and is no version of any model", seen=of_all,
                limit=limits.unfinished_bytes, setting="--max-unfinished-bytes", unit="bytes",
            )  # fmt: skip
        return None

    def _age_s(self) -> float:
        return float("inf") if self._counted_at is None else self._clock() - self._counted_at

    def _ended(self, counting: "asyncio.Task[None]") -> None:
        self._counting = None
        if not counting.cancelled():
            counting.exception()  # whoever still waits is told

    async def _count(self, size_bytes: int, sender: str) -> None:
        self._taken = await self._unfinished()
        if self._taken.of_all and self._refusal(size_bytes, sender) is not None:
            try:
                swept = await sweep(self._registry, SWEPT_OLDER_S)
            except ShoalError:  # some ledger cannot be read: then models stay, and the limit is what it is
                swept = 0
            self._taken = await self._unfinished() if swept else self._taken
        self._counted_at = self._clock()

    async def _unfinished(self) -> Taken:
        """Files before names: what becomes a version meanwhile counts as one. A file that two have sent is on the
        account of both."""
        objects = self._registry.objects
        chunks, blobs = await objects.list(UPLOADS), await objects.list(BLOBS)
        senders = [signed(key) for key in await objects.keys(SENDERS)]
        needed = await self._needed()
        unneeded = {found.key: found.size_bytes for found in (*chunks, *blobs) if found.key not in needed}
        by_sender: Counter[str] = Counter()
        for key, sender in (*((chunk.key, sender_of(chunk.key)) for chunk in chunks), *senders):
            by_sender[sender] += unneeded.get(key, 0)
        return Taken(sum(unneeded.values()), by_sender)

    async def _needed(self) -> set[str]:
        """The keys of the blobs of every version; of every artifact, where some name cannot be read."""
        states = await self._registry.names()
        digests = {version.digest for state in states.values() for version in state.versions.values()}
        if self._registry.unreadable:
            artifacts = await self._registry.objects.keys(ARTIFACTS)
            digests |= {key.removeprefix(ARTIFACTS).removesuffix(".json") for key in artifacts}
        self._files = {digest: files for digest, files in self._files.items() if digest in digests}
        for digest in digests - self._files.keys():
            self._files[digest] = await self._blobs(digest)
        return _all(self._files.values())

    async def _blobs(self, digest: str) -> frozenset[str]:
        try:
            manifest = await self._registry.manifest(digest)
        except (NotFound, ModelLoadFailed):
            return frozenset()
        return frozenset(blob_key(file.sha256) for file in manifest.files)


def _all(sets: Iterable[frozenset[str]]) -> set[str]:
    return set().union(*sets)
