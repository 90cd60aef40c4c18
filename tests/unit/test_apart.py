"""Files of pushed models that end whatever reads them: another process, and not the one that asks."""

import json

import pytest

from shoal.catalog import Artifact, Card
from shoal.catalog.apart import checked_apart
from shoal.catalog.store import checked
from shoal.protocol.errors import InvalidInput
from shoal.testing.checkpoints import tiny_encoder

CARD = Card(name="team/finder", source=Artifact("a" * 64))
EXPANDS = [
    {"type": "Replace", "pattern": {"Regex": "."}, "content": "a" * times} for times in (3000, 30_000, 30_000)
]


@pytest.fixture
def folder(tmp_path):
    tiny_encoder(tmp_path / "m")
    return tmp_path / "m"


def spoil(folder, **said):
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | said))


async def test_what_is_found_apart_is_what_is_found_here(folder):
    assert await checked_apart(folder, CARD) == checked(folder, CARD)
    (folder / "config.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"config.json"):
        await checked_apart(folder, CARD)


async def test_a_tokenizer_that_takes_all_memory_is_refused(folder):
    spoil(folder, normalizer={"type": "Sequence", "normalizers": EXPANDS})
    with pytest.raises(InvalidInput, match="more than 1 GB of memory"):
        await checked_apart(folder, CARD, memory_bytes=10**9)


async def test_a_tokenizer_that_panics_is_refused(folder):
    spoil(folder, normalizer={"type": "Precompiled", "precompiled_charsmap": "!!!"})
    with pytest.raises(InvalidInput, match=r"tokenizer\.json"):
        await checked_apart(folder, CARD)
    with pytest.raises(InvalidInput, match=r"tokenizer\.json"):
        checked(folder, CARD)


async def test_what_takes_too_long_is_ended(folder):
    with pytest.raises(InvalidInput, match=r"more than 0\.01 s"):
        await checked_apart(folder, CARD, within_s=0.01)
