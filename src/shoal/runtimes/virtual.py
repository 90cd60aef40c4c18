"""The virtual accelerator: a stand-in that takes the time a cost model says and computes nothing.

Rows are made up from a hash of the input, so that the same input always gives the same row. For tests,
simulation and trying out a deployment; what it returns means nothing, and with a LoRA adapter something else
that means nothing. Words in a text make it fail as a
real runtime might, when the text is run:

    shoal:virtual:die       the process is killed (SIGKILL)
    shoal:virtual:raise     the whole batch raises RuntimeError
    shoal:virtual:oom       the whole batch raises MemoryError
    shoal:virtual:nan       this row is NaN
    shoal:virtual:slow=2.5  the batch takes 2.5 seconds longer
"""

import contextlib
import functools
import hashlib
import math
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from shoal.catalog.virtual_device import VirtualDevice
from shoal.families import Prepared, family_named
from shoal.families.finish import finish
from shoal.families.lora import WEIGHTS, read_config
from shoal.protocol.errors import InternalError, ModelLoadFailed
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Item
from shoal.protocol.tensors import Array
from shoal.runtimes import Ran, Read

_WORDS = 1000
"""The vocabulary of its sparse vectors."""
_PLACES = 1 << 20
"""How many different rows there are."""
_AT_ONCE = 1 << 14
_FAULT = re.compile(r"shoal:virtual:(die|raise|oom|nan|slow=(\d+(?:\.\d+)?))")


def open_runtime(folder: Path, facts: Facts, profile: Profile) -> "VirtualRuntime":
    """Raises ModelLoadFailed where virtual.json is malformed; without one the device is the default one."""
    path = folder / "virtual.json"
    try:
        device = msgspec.json.decode(path.read_bytes(), type=VirtualDevice) if path.exists() else VirtualDevice()
    except (OSError, msgspec.DecodeError) as e:
        raise ModelLoadFailed(f"cannot read {path.name}: {e}") from e
    return VirtualRuntime(folder, facts, profile, device)


class VirtualRuntime:
    """A batch on a serial device waits until no other runs there, of this model or another."""

    def __init__(
        self,
        folder: Path,
        facts: Facts,
        profile: Profile,
        device: VirtualDevice,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.profile = _in_force(device, profile)
        self._facts = facts
        self._device = device
        self._sleep = sleep
        self._turn = _turns_at(profile.device) if device.serial else contextlib.nullcontext
        self._reader = family_named("virtual").open_reader(folder, facts)
        self._adapters: set[str] = set()

    def take_adapter(self, digest: str, folder: Path) -> int:
        """Whatever PEFT's files hold. Raises ModelLoadFailed where adapter_config.json is missing or malformed."""
        read_config(folder)
        self._adapters.add(digest)
        return (folder / WEIGHTS).stat().st_size if (folder / WEIGHTS).is_file() else 0

    def drop_adapter(self, digest: str) -> None:
        self._adapters.discard(digest)

    def prepare(self, items: Sequence[Item]) -> list[Read]:
        held, read = {"", *self._adapters}, self._reader.prepare(items)
        lost = InternalError("no such adapter is held")
        return [one if item.adapter in held else lost for item, one in zip(items, read, strict=True)]

    def run(self, batch: Sequence[Prepared], stream: int) -> Ran:
        lengths = [prepared.tokens for prepared in batch]
        takes = self._device.takes(lengths) + self._stall(batch)
        with self._turn():
            takes += sum(_misbehave(prepared.item) for prepared in batch)
            self._sleep(takes)
        computed = sum(self._device.laid_out(lengths))
        return Ran(finish(_outputs(batch, self._facts), batch, self._facts), computed, takes)

    def _stall(self, batch: Sequence[Prepared]) -> float:
        """Seconds more for some batches, always the same ones; what they hold says so, so that no two devices
        stall together for having begun together."""
        device = self._device
        if not device.stall_share:
            return 0.0
        held = repr((device.seed, [_asked(prepared.item) for prepared in batch])).encode()
        drawn = int.from_bytes(hashlib.blake2b(held, digest_size=8).digest(), "little") / 2**64
        return device.stall_seconds * device.dilation if drawn < device.stall_share else 0.0


def _turns_at(device: str) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """One at a time over all runtime processes of a node: they have the same parent."""
    import fcntl  # not on every system

    path = Path(tempfile.gettempdir()) / f"shoal-virtual-{os.getuid()}-{os.getppid()}-{device.replace(':', '-')}"

    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    return turn


def _in_force(device: VirtualDevice, profile: Profile) -> Profile:
    """The settings that suit a serial device: one batch in the engine, and one ready to follow it."""
    if not device.serial:
        return profile
    per_token = device.seconds_per_token or 1.0
    return msgspec.structs.replace(
        profile,
        streams=1,
        ahead=1,
        batch_items=device.batch_items or profile.batch_items,
        batch_tokens=device.batch_tokens or profile.batch_tokens,
        fixed_price=device.seconds / per_token,
        square_price=device.seconds_per_square / per_token if device.padded else 0.0,
        padding_price=1.0 if device.padded else 0.0,
    )


def _outputs(batch: Sequence[Prepared], facts: Facts) -> dict[str, Array]:
    """What heads.py names, made up. One word in fifty has a weight."""
    if facts.reads_pairs:
        return {"score": np.stack([4 * _made_up(p.item, max(1, len(facts.labels))) for p in batch])}
    outputs: dict[str, Array] = {}
    if "dense" in facts.kinds:
        outputs["dense"] = np.stack([_unit(_made_up(p.item, facts.dims)) for p in batch])
    if "sparse" in facts.kinds:
        outputs["sparse"] = np.stack([np.maximum(_made_up(p.item, _WORDS) - 2, 0) for p in batch])
    if facts.multivector is not None and "multivector" in facts.kinds:
        shapes = [(p.tokens, facts.multivector.dims) for p in batch]
        outputs["multivector"] = np.concatenate([_made_up(p.item, *s) for p, s in zip(batch, shapes, strict=True)])
    return outputs


def _misbehave(item: Item) -> float:
    """Does what the text asks for; how many seconds longer it takes."""
    seconds = 0.0
    for fault, slow in _FAULT.findall(f"{item.text} {item.pair or ''}"):
        if fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "raise":
            raise RuntimeError("the virtual accelerator was asked to fail")
        elif fault == "oom":
            raise MemoryError("the virtual accelerator was asked to run out of memory")
        elif slow:
            seconds += float(slow)
    return seconds


def _made_up(item: Item, *shape: int) -> Array:
    """Numbers around 0 in fp32 that depend on what was asked alone."""
    if "shoal:virtual:nan" in f"{item.text} {item.pair or ''}":
        return np.full(shape, np.nan, np.float32)
    where = int.from_bytes(hashlib.blake2b(repr(_asked(item)).encode(), digest_size=8).digest(), "little")
    size = math.prod(shape)
    if size > _AT_ONCE:
        return np.random.default_rng(where).standard_normal(shape, np.float32)
    start = where % (len(_noise()) - _AT_ONCE)
    return _noise()[start : start + size].reshape(shape)


def _asked(item: Item) -> tuple[object, ...]:
    asked = item.prompt + item.text, item.pair, item.ids
    return (*asked, item.adapter) if item.adapter else asked


@functools.cache
def _noise() -> Array:
    """Drawn once: drawing for every item would be most of what a request costs here."""
    return np.random.default_rng(1).standard_normal(_PLACES + _AT_ONCE, np.float32)


def _unit(x: Array) -> Array:
    unit: Array = x / np.linalg.norm(x)
    return unit
