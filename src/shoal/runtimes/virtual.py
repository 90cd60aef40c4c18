"""The virtual accelerator: a stand-in that takes the time a cost model says and computes nothing.

Rows are made up from a hash of the input, so that the same input always gives the same row. For tests,
simulation and trying out a deployment; what it returns means nothing. Words in a text make it fail as a
real runtime might, when the text is run:

    shoal:virtual:die       the process is killed (SIGKILL)
    shoal:virtual:raise     the whole batch raises RuntimeError
    shoal:virtual:oom       the whole batch raises MemoryError
    shoal:virtual:nan       this row is NaN
    shoal:virtual:slow=2.5  the batch takes 2.5 seconds longer
"""

import functools
import hashlib
import math
import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from shoal.families import Prepared, family_named
from shoal.families.finish import finish
from shoal.protocol.errors import ModelLoadFailed
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


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`virtual.json` in the model's folder: seconds a batch, a token, and a squared length."""

    seconds: float = 0.001
    seconds_per_token: float = 0.000002
    seconds_per_square: float = 0.0

    def of(self, lengths: Sequence[int]) -> float:
        squares = sum(n * n for n in lengths)
        return self.seconds + self.seconds_per_token * sum(lengths) + self.seconds_per_square * squares


def open_runtime(folder: Path, facts: Facts, profile: Profile) -> "VirtualRuntime":
    """Raises ModelLoadFailed where virtual.json is malformed; without one the cost is its defaults."""
    path = folder / "virtual.json"
    try:
        cost = msgspec.json.decode(path.read_bytes(), type=Cost) if path.exists() else Cost()
    except (OSError, msgspec.DecodeError) as e:
        raise ModelLoadFailed(f"cannot read {path.name}: {e}") from e
    return VirtualRuntime(folder, facts, profile, cost)


class VirtualRuntime:
    def __init__(
        self, folder: Path, facts: Facts, profile: Profile, cost: Cost, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.profile = profile
        self._facts = facts
        self._cost = cost
        self._sleep = sleep
        self._reader = family_named("virtual").open_reader(folder, facts)

    def prepare(self, items: Sequence[Item]) -> list[Read]:
        return self._reader.prepare(items)

    def run(self, batch: Sequence[Prepared], stream: int) -> Ran:
        lengths = [prepared.tokens for prepared in batch]
        self._sleep(self._cost.of(lengths) + sum(_misbehave(prepared.item) for prepared in batch))
        return Ran(finish(_outputs(batch, self._facts), batch, self._facts), sum(lengths))


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
    asked = repr((item.prompt + item.text, item.pair, item.ids)).encode()
    where = int.from_bytes(hashlib.blake2b(asked, digest_size=8).digest(), "little")
    size = math.prod(shape)
    if size > _AT_ONCE:
        return np.random.default_rng(where).standard_normal(shape, np.float32)
    start = where % (len(_noise()) - _AT_ONCE)
    return _noise()[start : start + size].reshape(shape)


@functools.cache
def _noise() -> Array:
    """Drawn once: drawing for every item would be most of what a request costs here."""
    return np.random.default_rng(1).standard_normal(_PLACES + _AT_ONCE, np.float32)


def _unit(x: Array) -> Array:
    unit: Array = x / np.linalg.norm(x)
    return unit
