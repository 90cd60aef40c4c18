"""Which models exist, as data. A card says where a model comes from and what is known of it; a model is a
card whose files are on this disk, checked, with its facts read. `store` keeps both.

Knows files and names. Does not know engines, queues or HTTP. A kind of source is a module here of that name
with `fetch(source, into, report)`, which puts a model's files into an empty folder.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from shoal.protocol.facts import Facts

Report = Callable[[str, int, int], None]
"""Told what is being done, and bytes done of bytes in all (0 where that is not known)."""


class Package(
    msgspec.Struct, frozen=True, tag="package", tag_field="kind", kw_only=True, forbid_unknown_fields=True
):
    """A wheel in a package registry, pinned. `folder` is where the model's files stand inside it.

    `python_version` is asked for where no wheel exists for the Python that runs Shoal; "" asks for its own.
    """

    distribution: str
    version: str
    sha256: str
    folder: str
    python_version: str = ""


class Folder(msgspec.Struct, frozen=True, tag="folder", tag_field="kind", forbid_unknown_fields=True):
    """A folder on this machine, copied into the store when it is added."""

    path: str


class Virtual(
    msgspec.Struct, frozen=True, tag="virtual", tag_field="kind", kw_only=True, forbid_unknown_fields=True
):
    """No weights: the virtual runtime's stand-in, which takes the time that its cost model says.

    The store writes these two numbers into the model's folder as `virtual.json`.
    """

    seconds: float = 0.001
    seconds_per_token: float = 0.000002


Source = Package | Folder | Virtual


class Card(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One model as data. `facts` lists only what its files do not say, or say wrongly.

    `provenance` gives, for every fact on the card, where it was read. `revision` is the publisher's, null
    where it could not be looked up; such a card says `verified = false`.
    """

    name: str
    source: Source
    title: str = ""
    licence: str = ""
    homepage: str = ""
    revision: str | None = None
    verified: bool = False
    default: bool = False
    """Used for a task where a request names no model."""
    facts: dict[str, object] = {}
    tolerance: float | None = None
    """Cosine that alone, batched and shuffled agree to, where the artifact's own engine gives less than
    0.9999 (dynamically quantised ONNX)."""
    provenance: dict[str, str] = {}


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A card whose files are here. `digest` names the artifact by its content; sizes in bytes."""

    card: Card
    facts: Facts
    folder: Path
    digest: str
    size_bytes: int

    @property
    def name(self) -> str:
        return self.card.name
