"""Files of pushed models, brought from the object store to this disk when they are first needed: each checked by
its hash, within the disk's budget, once however many ask, and begun again where an earlier attempt ended.

Knows the registry and the store's copies. Does not know what the files are for.
"""

import asyncio
import logging
import time
from pathlib import Path
from typing import Protocol

from shoal.catalog import Artifact, Model
from shoal.catalog.leftovers import DIGEST
from shoal.catalog.registry import Registry
from shoal.catalog.store import Store
from shoal.observe import log as logs
from shoal.protocol.errors import ModelNotFound, NotFound, ResourceExhausted

log = logging.getLogger("shoal.node")
AT_ONCE = 4
"""Artifacts that are fetched at the same time."""
LOOK_AGAIN_S = 0.1


class Files(Protocol):
    async def ready(self, model: Model) -> Path:
        """The folder of its files, once all are here. Raises a ShoalError where they cannot be had: one that is
        retryable for what may be there in a moment."""
        ...


class OnDisk:
    """Of a node without an object store, where nothing is fetched."""

    async def ready(self, model: Model) -> Path:
        """Raises ModelNotFound where they are gone."""
        return _standing(model)


def _standing(model: Model) -> Path:
    if not model.folder.is_dir():
        raise ModelNotFound(f"the files of {model.name} are gone from {model.folder}")
    return model.folder


class Fetching:
    def __init__(self, registry: Registry, store: Store) -> None:
        self._registry, self._store, self._copies = registry, store, store.copies
        self._under_way: dict[str, asyncio.Task[Path]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def ready(self, model: Model) -> Path:
        is_pushed = isinstance(model.card.source, Artifact)
        return await self.artifact(model.digest) if is_pushed else _standing(model)

    async def artifact(self, digest: str) -> Path:
        """Its folder. What was begun goes on when whoever asked has left."""
        if not DIGEST.fullmatch(digest):
            raise NotFound(f"{digest[:64]!r} is no artifact's digest")
        folder = self._store.folder_of(digest)
        if folder.is_dir():
            self._copies.used(digest)
            return folder
        task = self._under_way.get(digest)
        if task is None:
            task = self._under_way[digest] = asyncio.get_running_loop().create_task(self._bring(digest))
            task.add_done_callback(lambda done: self._ended(digest, done))
        return await asyncio.shield(task)

    async def close(self) -> None:
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, digest: str, task: "asyncio.Task[Path]") -> None:
        self._under_way.pop(digest, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            told = logs.fields(digest=digest[:12], reason=str(error))
            log.warning("a pushed model's files could not be fetched", extra=told)

    async def _bring(self, digest: str) -> Path:
        """Another process with the same folder may be at it: then that one's copy is ours too."""
        async with self._turns:
            while True:
                with self._copies.alone(digest) as is_ours:
                    if self._copies.used(digest):
                        return self._copies.path(digest)
                    if is_ours:
                        try:
                            return await self._fetch(digest)
                        except OSError as error:  # of this disk
                            raise ResourceExhausted(f"its files cannot be kept here: {error}") from error
                await asyncio.sleep(LOOK_AGAIN_S)

    async def _fetch(self, digest: str) -> Path:
        began = time.monotonic()
        manifest = await self._registry.manifest(digest)
        await asyncio.to_thread(self._store.make_room_for_copy, manifest.size_bytes)
        await self._registry.fetch(digest, self._copies.coming(digest))
        folder = await asyncio.to_thread(self._copies.came, digest)
        told = logs.fields(
            digest=digest[:12], megabytes=round(manifest.size_bytes / 1e6, 1),
            seconds=round(time.monotonic() - began, 2),
        )  # fmt: skip
        log.info("a pushed model's files were fetched", extra=told)
        return folder
