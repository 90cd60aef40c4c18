"""What computes. The contract every runtime fills; one file each, found by name; `host` runs one in a process.

A runtime knows an engine and one loaded model. It does not know jobs, requests, queues or HTTP. `prepare` is
called on one thread, `run` on as many others as the profile has slots at once.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from shoal.families import Prepared as Prepared
from shoal.families import Read as Read
from shoal.protocol.errors import InvalidInput
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Item
from shoal.protocol.tensors import Array


class Ran(msgspec.Struct, frozen=True):
    """`rows`: for each prepared item its named arrays. `tokens`: those computed, padding included. `seconds` of
    the engine alone, where it has to wait for its turn; None where it has not."""

    rows: list[dict[str, Array]]
    tokens: int
    seconds: float | None = None


class Runtime(Protocol):
    profile: Profile
    """The settings in force, which may differ from those asked for (no bf16 on this CPU, say)."""

    def prepare(self, items: Sequence[Item]) -> list[Read]:
        """Tokenise. One entry per item; one that cannot be served gets its error, one without work its output."""
        ...

    def run(self, batch: Sequence[Prepared], slot: int) -> Ran:
        """One forward pass in slot 0…slots-1; or in the one after those, which is for an item that is alone, where
        the profile says `lone`. As many rows as items. fp32 out, pooled and activated."""
        ...


@runtime_checkable
class Adapting(Protocol):
    """What a runtime can besides, where it computes LoRA adapters: items of different adapters, and of none, share
    one `run`. Both are called on a thread of their own, while `prepare` and `run` are under way on others.
    """

    def take_adapter(self, digest: str, folder: Path) -> int:
        """Hold the adapter, whose files are in `folder`, under its digest. Bytes that its factors take.

        Raises ModelLoadFailed for one that is not this model's; whatever else was held is as before.
        """
        ...

    def drop_adapter(self, digest: str) -> None:
        """Nothing names it any more. One that is not held is no error."""
        ...


class Opener(Protocol):
    """Every runtime module has one as `open_runtime`."""

    def __call__(self, folder: Path, facts: Facts, profile: Profile) -> Runtime: ...


def open_runtime(folder: Path, facts: Facts, profile: Profile) -> Runtime:
    """Load a model with the runtime that `profile` names. Raises ModelLoadFailed or InvalidInput."""
    try:
        module = importlib.import_module(f"shoal.runtimes.{profile.runtime}")
    except ModuleNotFoundError as e:
        raise InvalidInput(f"no runtime {profile.runtime!r} here ({e})") from e
    opener: Opener = module.open_runtime
    runtime = opener(folder, facts, profile)
    if facts.sparse is not None and facts.sparse.queries == "table":
        # Imported late: it needs this contract.
        from shoal.runtimes.lookup import LookUp

        return LookUp(runtime, folder, facts)
    return runtime
