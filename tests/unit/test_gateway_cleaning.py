"""What nobody goes on with does not stay in the object store, and what is being pushed does."""

import asyncio
import hashlib
import logging
from pathlib import Path

from shoal.catalog.manifests import File
from shoal.catalog.objects import Objects
from shoal.catalog.registry import Registry
from shoal.gateway.cleaning import clean

FILE = File("config.json", hashlib.sha256(b"what was meant").hexdigest(), 14)


async def test_an_upload_that_nobody_goes_on_with_is_removed_and_a_fresh_one_stays(tmp_path: Path) -> None:
    registry = Registry(Objects.open(str(tmp_path)))
    await registry.receive(FILE, 0, b"what was")
    cleaning = asyncio.create_task(clean(registry, every_s=0.01, kept_s=3600))
    for _ in range(20):
        await asyncio.sleep(0.01)
    cleaning.cancel()
    assert await registry.receive(FILE, 8, b" me") == 11
    cleaning = asyncio.create_task(clean(registry, every_s=0.01, kept_s=-1))
    async with asyncio.timeout(60):
        while await registry.objects.list("uploads/"):
            await asyncio.sleep(0.01)
    cleaning.cancel()


async def test_a_store_that_cannot_be_judged_is_left_alone_and_said_to_be(tmp_path: Path, caplog) -> None:
    registry = Registry(Objects.open(str(tmp_path)))
    await registry.objects.put(f"artifacts/{'ab' * 32}.json", b"{")
    await registry.objects.put("ledger/team__a/00000001.json", b"{")
    with caplog.at_level(logging.WARNING):
        cleaning = asyncio.create_task(clean(registry, every_s=0.01, kept_s=-1))
        async with asyncio.timeout(60):
            while "was not swept" not in caplog.text:
                await asyncio.sleep(0.01)
    assert not cleaning.done()
    cleaning.cancel()
    assert await registry.objects.list("artifacts/")
