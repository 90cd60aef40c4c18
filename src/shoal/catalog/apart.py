"""The files of a pushed model, looked at in a process of its own: what stands in them can make a library panic,
take all memory or never end, and then that process ends, and neither a node nor what it computes.

Asked by a node before it loads what somebody pushed. What is looked at, and what is wrong, is `checked`'s to say.
"""

import asyncio
import contextlib
import sys
from pathlib import Path

import msgspec

from shoal.catalog import Card
from shoal.catalog.store import checked
from shoal.protocol.errors import Fault, InternalError, InvalidInput, ShoalError, from_fault
from shoal.protocol.facts import Facts

WITHIN_S = 120.0
MEMORY_BYTES = 8_000_000_000
"""Some ten times what the tokenizer of a large vocabulary takes."""
_FIRST_TO_GO = 1000
"""Where the machine has less than that, the system ends this process before any other."""


class Found(msgspec.Struct, frozen=True):
    card: Card
    facts: Facts


async def checked_apart(
    folder: Path, card: Card, within_s: float = WITHIN_S, memory_bytes: int = MEMORY_BYTES
) -> tuple[Card, Facts]:
    """Raises InvalidInput, also for files that are too much for the process."""
    limits = (str(memory_bytes), str(int(within_s) + 1))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "shoal.catalog.apart", str(folder), *limits,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(within_s):
            said, _ = await process.communicate(msgspec.json.encode(card))
    except TimeoutError:
        raise InvalidInput(f"to read these files takes more than {within_s:g} s, which no model's do") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode == 0:
        found = msgspec.json.decode(said, type=Found)
        return found.card, found.facts
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        raise from_fault(msgspec.json.decode(said, type=Fault))
    if process.returncode is None or process.returncode > 0:
        raise InternalError(f"what looks at a pushed model's files ended with {process.returncode}")
    raise InvalidInput(
        f"to read these files takes more than {memory_bytes / 1e9:.0f} GB of memory, or makes the libraries that "
        "read them abort; no model's files do"
    )


def main(folder: str, memory_bytes: str, seconds: str) -> int:
    """A card on stdin; what was found, or a Fault and 1, on stdout."""
    _bound(int(memory_bytes), int(seconds))
    card = msgspec.json.decode(sys.stdin.buffer.read(), type=Card)
    try:
        found = Found(*checked(Path(folder), card))
    except ShoalError as error:
        return _say(error.fault(), 1)
    except BaseException as error:  # a panic in a library is no Exception
        return _say(InvalidInput(f"these files cannot be read: {str(error)[:500]}").fault(), 1)
    return _say(found, 0)


def _bound(memory_bytes: int, seconds: int) -> None:
    with contextlib.suppress(OSError):  # only Linux has it
        Path("/proc/self/oom_score_adj").write_text(str(_FIRST_TO_GO), encoding="ascii")
    with contextlib.suppress(ImportError, OSError, ValueError):  # not every system has all of them
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _say(what: object, code: int) -> int:
    sys.stdout.buffer.write(msgspec.json.encode(what))
    sys.stdout.buffer.flush()
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
