"""The installed models as files, `models/<slug>.json`: one record each, replaced in one step."""

import time
from pathlib import Path
from typing import Annotated

import msgspec

from shoal.catalog import Card, Model
from shoal.catalog.artifacts import signature_of, write_file
from shoal.catalog.names import slug
from shoal.protocol.facts import Facts

SETTLED_S = 2.0
"""A folder that changed longer ago changes its time again with the next write, however coarse its clock."""


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    size_bytes: int
    facts: Facts
    card: Card
    keep: bool = False


class _Reference(msgspec.Struct, frozen=True):
    """What every release's record says, also one that we cannot read as a whole."""

    digest: str


class Records:
    def __init__(self, folder: Path, artifacts: Path) -> None:
        self._folder, self._artifacts = folder, artifacts
        self._signature: tuple[float, object] | None = None

    def read(self) -> tuple[dict[str, Model], dict[str, str]]:
        """Name → model, and name → what is wrong for the records that cannot be served; both by name."""
        models, problems = {}, {}
        for path in sorted(self._folder.glob("[!.]*.json")):
            try:
                record = msgspec.json.decode(path.read_bytes(), type=_Record)
            except FileNotFoundError:
                continue  # removed since it was listed
            except (msgspec.DecodeError, UnicodeDecodeError, OSError) as e:
                problems[path.stem.replace("__", "/")] = f"its record {path} cannot be read: {e}"
                continue
            model = Model(
                card=record.card,
                facts=record.facts,
                folder=self._artifacts / record.digest,
                digest=record.digest,
                size_bytes=record.size_bytes,
                keep=record.keep,
            )
            if model.folder.is_dir():
                models[model.name] = model
            else:
                problems[model.name] = f"its files are gone from {model.folder}"
        return dict(sorted(models.items())), problems

    def write(self, model: Model) -> None:
        record = _Record(
            digest=model.digest, size_bytes=model.size_bytes, facts=model.facts, card=model.card, keep=model.keep
        )
        write_file(self._folder / f"{slug(model.name)}.json", msgspec.json.format(msgspec.json.encode(record)))

    def remove(self, name: str) -> None:
        (self._folder / f"{slug(name)}.json").unlink(missing_ok=True)

    def written_at(self) -> dict[str, float]:
        """Name → when its record was last written, in seconds since the epoch."""
        paths = self._folder.glob("[!.]*.json")
        return {path.stem.replace("__", "/"): path.stat().st_mtime for path in paths}

    def digests(self) -> set[str] | None:
        """Every artifact that a record names; None if some record does not even tell its own."""
        try:
            return {
                msgspec.json.decode(path.read_bytes(), type=_Reference).digest
                for path in self._folder.glob("[!.]*.json")
            }
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def _changed_at(self) -> float:
        try:
            return self._folder.stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def signature(self) -> object:
        """Differs after every write and removal. Of thousands of records not each is looked at: one is always
        written beside its place and renamed, which the folder's own time tells, but for two within one tick of its
        clock."""
        now, changed_at = time.time(), self._changed_at()
        if self._signature is None or changed_at != self._signature[0] or now - changed_at < SETTLED_S:
            self._signature = changed_at, signature_of(self._folder, ".json")
        return self._signature[1]
