"""Processes that `shoal up` looks after: which deaths are lasting, and how patiently others are begun again."""

import asyncio
import sys

import pytest

from shoal.cli._children import Child, Spec, replace
from shoal.protocol.errors import InvalidInput

READY = """
import os, socket
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
"""


def spec(*programs: str) -> Spec:
    """A process that runs the first program at its first start, and so on; the last one again and again."""
    return Spec(
        name="child", command=lambda start: [sys.executable, "-c", programs[min(start, len(programs)) - 1]]
    )


STAYS = READY + "import time; time.sleep(600)"


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("code", [2, 78])
async def test_one_that_cannot_be_started_as_it_is_configured_is_not_begun_again(code):
    child = Child(spec(f"import sys; print('Error: no such pin'); sys.exit({code})"))
    with pytest.raises(InvalidInput, match="child cannot be started as it is configured: no such pin"):
        await child.wait_ready()
    await child.end()
    assert child.generation == 1


async def test_deaths_of_another_kind_are_followed_by_ever_longer_pauses(caplog):
    child = Child(spec("raise SystemExit(1)", "raise SystemExit(3)", "import os; os.kill(os.getpid(), 9)", STAYS))
    assert await child.wait_ready()
    assert child.generation == 4
    assert [(r.fields["code"], r.fields["again_in_s"]) for r in caplog.records if r.message == "died"] == [
        (1, 0.2), (3, 0.4), (-9, 0.8),
    ]  # fmt: skip
    await child.end()


async def test_one_that_once_was_ready_is_begun_again_whatever_it_says_when_it_dies():
    """A model that it needs may have been removed, and comes back."""
    child = Child(spec(READY + "raise SystemExit(78)", "raise SystemExit(78)", STAYS))
    assert await child.wait_ready()
    await until(lambda: child.generation == 3)
    await child.end()


async def test_one_is_not_replaced_by_another_that_cannot_be_started(caplog):
    child = Child(spec(STAYS, "raise SystemExit(78)"))
    assert await child.wait_ready()
    pid = child.pid
    assert await replace(child) is child
    assert child.pid == pid
    (said,) = (record for record in caplog.records if record.message == "not replaced")
    assert "cannot be started" in said.fields["reason"]
    await child.end()
