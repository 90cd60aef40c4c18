"""What was settled for a model on one kind of device by measuring it: a dtype that passed the gate, how near it
is, sizes of batches. The store keeps its own by artifact (`profiles/<digest>.<kind>.json`); those of some known
cards come with Shoal, one TOML file a card in this folder.

Knows files. How a model is measured: lab/gate.py. What is done where nothing was settled: node/devices.py.
"""

import functools
import logging
import tomllib
from collections.abc import Collection, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from shoal.catalog import Model
from shoal.catalog.artifacts import signature_of, write_file
from shoal.catalog.cards import all_cards
from shoal.catalog.leftovers import DIGITS_IN_MEASURED
from shoal.protocol.errors import InvalidInput
from shoal.protocol.facts import Profile

log = logging.getLogger("shoal.catalog")

Words = Annotated[str, msgspec.Meta(max_length=300)]
Streams = Annotated[int, msgspec.Meta(ge=1, le=256)]
Items = Annotated[int, msgspec.Meta(ge=1, le=4096)]
Tokens = Annotated[int, msgspec.Meta(ge=16, le=65_536)]
Price = Annotated[float, msgspec.Meta(ge=0, le=4096)]
_FEATURES = {"amx_bf16": "amx", "avx512_bf16": "bf16", "avx512f": "avx512", "avx2": "avx2"}


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing measured, beside what it has to reach; no `sign` where nothing is asked of it."""

    what: Words
    value: float
    sign: Literal["≥", "≤", ""] = ""
    bar: float = 0.0

    @property
    def passed(self) -> bool:
        """What is no number passes no bar."""
        return not self.sign or (self.value >= self.bar if self.sign == "≥" else self.value <= self.bar)


class Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Fields of a `Profile` that were settled, and how: `by` names the command, `engine` its engine and version.

    Bounds keep a damaged or hostile file from asking for what no model is served with.
    """

    runtime: Annotated[str, msgspec.Meta(pattern="^[a-z]{1,32}$")]
    device: Annotated[str, msgspec.Meta(pattern="^[a-z]{1,32}$")] = "cpu"
    dtype: Literal["bf16", "fp32"]
    tolerance: Annotated[float, msgspec.Meta(ge=0.9, le=1)]
    streams: Streams | None = None
    batch_items: Items | None = None
    batch_tokens: Tokens | None = None
    fixed_price: Price | None = None
    square_price: Price | None = None
    by: Words
    engine: Words = ""
    figures: Annotated[tuple[Figure, ...], msgspec.Meta(max_length=64)] = ()

    def applied(self, rule: Profile) -> Profile:
        """`rule` with what was settled; as it is where that was for another runtime or device."""
        if (rule.runtime, rule.device) != (self.runtime, self.device):
            return rule
        sizes = {name: value for name in _SIZES if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(rule, dtype=self.dtype, tolerance=self.tolerance, **sizes)


_SIZES = ("streams", "batch_items", "batch_tokens", "fixed_price", "square_price")


class Shipped(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What comes with Shoal for one card. `digest` is the artifact measured; `on` is by kind of device."""

    name: str
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    on: dict[str, Kept]


def device_kind(machine: str, flags: Collection[str], cores: int) -> str:
    """Processors on which the same settings suit, e.g. "x86_64-bf16-2": the architecture, the best there is of the
    features that engines choose their kernels by, and how many cores there are.
    """
    feature = next((name for flag, name in _FEATURES.items() if flag in flags), "plain")
    return f"{machine.lower()}-{feature}-{cores}"


def for_kind(known: Mapping[str, Kept], kind: str) -> Kept | None:
    """Of `kind` itself; or of the same with another number of cores, but then without any sizes: how near a dtype
    is lies in the products, not in how many are done at once."""
    if kind in known:
        return known[kind]
    features = kind.rpartition("-")[0]
    akin = next((kept for name, kept in known.items() if name.rpartition("-")[0] == features), None)
    return akin and msgspec.structs.replace(akin, **dict.fromkeys(_SIZES))


@functools.cache
def all_shipped() -> dict[str, Shipped]:
    """By the card's name."""
    files = (path for path in resources.files(__name__).iterdir() if path.name.endswith(".toml"))
    found = [parse_shipped(path.read_text(encoding="utf-8"), path.name) for path in files]
    return {shipped.name: shipped for shipped in found}


def parse_shipped(text: str, origin: str) -> Shipped:
    """Raises InvalidInput, naming `origin` and the field."""
    try:
        return msgspec.convert(tomllib.loads(text), Shipped)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as e:
        raise InvalidInput(f"{origin}: {e}") from e


class Profiles:
    """Those for one kind of device. `own` and `of` look in memory, `refresh` looks at the disk."""

    def __init__(self, home: Path, kind: str) -> None:
        """`home` is the store's. Creates nothing."""
        self.kind = kind
        self._folder = home / "profiles"
        self._own: dict[str, Kept] = {}
        self._seen: object = None
        self.refresh()

    def refresh(self) -> bool:
        """Read the files again if any was written or removed since; whether so."""
        seen = signature_of(self._folder, ".json")
        if seen == self._seen:
            return False
        self._seen = seen
        found = {path.name.partition(".")[0]: _read(path) for path in self._folder.glob(f"[!.]*.{self.kind}.json")}
        self._own = {short: kept for short, kept in found.items() if kept is not None}
        return True

    def own(self, model: Model) -> Kept | None:
        """What was settled here for these very files."""
        return self._own.get(model.digest[:DIGITS_IN_MEASURED])

    def of(self, model: Model) -> Kept | None:
        """What was settled here; else what comes with the model's card, if the model came from where that says."""
        return self.own(model) or self._shipped(model)

    def write(self, model: Model, kept: Kept) -> Path:
        """Replaces in one step; sizes that were settled before stay. A server that runs takes it up."""
        old = self.own(model)
        if old is not None:
            sizes = {name: getattr(old, name) for name in _SIZES if getattr(kept, name) is None}
            kept = msgspec.structs.replace(kept, **sizes)
        path = self._folder / f"{model.digest[:DIGITS_IN_MEASURED]}.{self.kind}.json"
        write_file(path, msgspec.json.format(msgspec.json.encode(kept)))
        self.refresh()
        return path

    def _shipped(self, model: Model) -> Kept | None:
        name = model.card.name
        shipped, card = all_shipped().get(name), all_cards().get(name)
        if shipped is None or card is None or card.source != model.card.source:
            return None
        return for_kind(shipped.on, self.kind)


def _read(path: Path) -> Kept | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except (OSError, msgspec.DecodeError, RecursionError, ValueError) as e:
        log.warning("a profile is not used: %s: %s", path, e)
        return None
