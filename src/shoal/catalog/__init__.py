"""Which models exist, as data. A card says where a model comes from and what is known of it; a model is a
card whose files are on this disk, checked, with its facts read. `store` keeps both.

Knows files and names. Does not know engines, queues or HTTP. A kind of source is a module here of that name
with `fetch(source, into, taking)`, which puts a model's files into an empty folder and says which revision of
them it got ("" where the source has none).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from shoal.catalog.listed import Listed
from shoal.catalog.virtual_device import VirtualDevice
from shoal.protocol.facts import Facts

Report = Callable[[str, int, int], None]
"""Told what is being done, and bytes done of bytes in all (0 where that is not known)."""


class Taking(msgspec.Struct, frozen=True):
    """What the store does for a source while files come in.

    `need` is told bytes about to be written and raises ResourceExhausted where they may not be; `look` is
    called once every small file is there, and raises InvalidInput before large ones come for nothing. `begun`
    is a folder that outlives an add that fails, for what the next one may go on from.
    """

    report: Report
    need: Callable[[int], None]
    look: Callable[[], None]
    begun: Path


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


class Hub(
    msgspec.Struct, frozen=True, tag="hub", tag_field="kind", forbid_unknown_fields=True, omit_defaults=True
):
    """A repository on a model hub. `revision` is a commit, tag or branch; "" takes the newest commit."""

    repo: str
    revision: str = ""


class Tar(msgspec.Struct, frozen=True, tag="tar", tag_field="kind", forbid_unknown_fields=True):
    """A .tar or .tar.gz on this machine, of a model's folder."""

    path: str


class Virtual(
    VirtualDevice, frozen=True, tag="virtual", tag_field="kind", forbid_unknown_fields=True, omit_defaults=True
):
    """No weights: the virtual runtime's stand-in, which takes the time that its cost model says.

    The store writes what it pretends to be into the model's folder as `virtual.json`.
    """


class Artifact(msgspec.Struct, frozen=True, tag="artifact", tag_field="kind", forbid_unknown_fields=True):
    """Pushed: its files are in the object store, under this digest (registry)."""

    digest: str


Source = Package | Hub | Folder | Tar | Virtual | Artifact


class Variant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A way to compute a model that a user may choose by name (`org/name:int8`), and how good it is.

    `tolerance` is the least cosine to the model's own fp32 vectors that was measured; `note` says on what.
    """

    dtype: Literal["bf16", "fp32", "int8"]
    tolerance: float
    note: str = ""


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
    listed: Listed | None = None
    unservable: str = ""
    """Why adding it would be refused, where that is known before anything is downloaded."""
    tolerance: float | None = None
    """Cosine that alone, batched and shuffled agree to, where the artifact's own engine gives less than
    0.9999 (dynamically quantised ONNX)."""
    variants: dict[str, Variant] = {}
    base: str = ""
    """Of a LoRA adapter: the name of the model that it changes."""
    provenance: dict[str, str] = {}


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A card whose files are here. `digest` names the artifact by its content; sizes in bytes.

    A variant is a model of its own to the node: other memory, other numbers, the same files. So is each `version`
    of a model that was pushed, 0 for others; `called` is the word that it was asked for by, "" for its name.
    `keep` guards files from being evicted for another model's. A LoRA adapter has the facts of its base, and waits
    in its line; `base_digest` names the base's files that it is for, "" for whichever are there.
    """

    card: Card
    facts: Facts
    folder: Path
    digest: str
    size_bytes: int
    variant: str = ""
    keep: bool = False
    version: int = 0
    called: str = ""
    base_digest: str = ""

    @property
    def name(self) -> str:
        """What it is to nodes: no two that compute differently have the same."""
        return self._with_variant(self.plain_name)

    @property
    def plain_name(self) -> str:
        """Without its variant: what adapters are for, and what is told of it."""
        return f"{self.card.name}@{self.version}" if self.version else self.card.name

    @property
    def shown(self) -> str:
        """What it is to whoever asked for it."""
        return self._with_variant(self.called) if self.called else self.name

    @property
    def line(self) -> str:
        """Which line its requests wait in: an adapter's in its base's."""
        return self.card.base or self.name

    def _with_variant(self, name: str) -> str:
        return f"{name}:{self.variant}" if self.variant else name
