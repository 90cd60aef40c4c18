"""The models of a cluster: what its nodes say they hold, kept from the notes that they put up on the board, and
what was pushed to it.

Knows notes as bytes by key, not how they travel. A gateway resolves names by it as a single machine does by its
store; nobody's disk is looked at.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from shoal.catalog import Card, Model, finding
from shoal.catalog.cards import all_cards
from shoal.catalog.names import parse_name
from shoal.catalog.pushed import Pushed
from shoal.catalog.stock import default_model, found, merged
from shoal.observe import log as logs
from shoal.protocol.errors import ModelLoading, NoNode
from shoal.protocol.facts import Facts

log = logging.getLogger("shoal.catalog")
_PREFIX = "model/"
GONE_AFTER_S = 1.0
"""One node's word that a model is gone is believed when no other has put its note up again by then."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model as any node that holds its files describes it: enough to admit a request and to list it."""

    card: Card
    facts: Facts
    digest: str
    size_bytes: int


def note_of(model: Model) -> tuple[str, bytes]:
    """The key and the note under which `model` is put up."""
    entry = Entry(card=model.card, facts=model.facts, digest=model.digest, size_bytes=model.size_bytes)
    return key_of(model.card.name), msgspec.json.encode(entry)


def key_of(name: str) -> str:
    return f"{_PREFIX}{name}"


def name_in(key: str) -> str | None:
    """The model's name; None for a note about something else."""
    return key.removeprefix(_PREFIX) if key.startswith(_PREFIX) else None


class SharedCatalog:
    """The same questions as `store.Store` answers for a gateway. Models have no folder here."""

    def __init__(
        self,
        pushed: Pushed | None = None,
        clock: Callable[[], float] = time.monotonic,
        nodes: Callable[[], int] = lambda: 0,
    ) -> None:
        """`pushed` is fed by others too; `nodes` says how many there are now."""
        self._clock, self._nodes = clock, nodes
        self._pushed = pushed or Pushed()
        self._models: dict[str, Model] = {}
        self._defaults = finding.Defaults()
        self._going: dict[str, float] = {}  # until when a model that was taken down is still believed in

    def noted(self, key: str, note: bytes | None) -> None:
        """What the board says (queue.board.Reader). A note that cannot be read is left out, and logged."""
        name = name_in(key)
        if name is None:
            return
        if note is None:
            if name in self._models:
                self._going[name] = self._clock() + GONE_AFTER_S
            return
        try:
            entry = msgspec.json.decode(note, type=Entry)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            log.warning("a model's note cannot be read", extra=logs.fields(model=name, reason=str(error)))
            return
        self._going.pop(name, None)
        self._defaults = finding.Defaults()
        is_new = name not in self._models
        self._models[name] = Model(
            card=entry.card, facts=entry.facts, folder=Path(), digest=entry.digest, size_bytes=entry.size_bytes
        )
        if is_new:
            self._models = dict(sorted(self._models.items()))

    def models(self) -> dict[str, Model]:
        """Name → model, sorted by name; of a pushed one its current version."""
        return merged(self._held(), self._pushed)

    def _held(self) -> dict[str, Model]:
        """Those that nodes hold without having been pushed."""
        if self._going:
            now = self._clock()
            for name in [name for name, until in self._going.items() if until <= now]:
                del self._going[name], self._models[name]
                self._defaults = finding.Defaults()
        return self._models

    def cards(self) -> dict[str, Card]:
        """Every card known here, sorted by name: those that come with Shoal, those of the cluster's models."""
        return dict(sorted((all_cards() | {name: model.card for name, model in self.models().items()}).items()))

    def resolve(self, name: str) -> Model:
        """As `Store.resolve`. Raises ModelNotFound, saying what there is instead; NoNode, or ModelLoading, before
        any node has told of a model.
        """
        if (pushed := found(name, self._pushed)) is not None:
            return pushed
        asked = parse_name(name)
        models = self._some_models(name)
        model = finding.named(models, asked.name)
        if model is not None and not asked.version and not asked.variant:
            return model
        return finding.chosen(asked, model, models, self.cards())

    def default_model(self, task: str, kind: str = "") -> Model:
        models = self._some_models("")
        return default_model(lambda *of: self._defaults.find(models, *of), self._pushed, task, kind)

    def _some_models(self, asked: str) -> dict[str, Model]:
        models = self._held()
        if not models and not self._nodes():
            raise NoNode("no node has joined this pool; `shoal node` starts one, then ask again")
        if not models and not self._pushed.models():
            raise ModelLoading(
                "no node of this pool has a model yet; `shoal add NAME` where one runs brings it", model=asked
            )
        return models
