"""The models on this disk: added, removed, found by name. One folder, shared by every Shoal process here:

    artifacts/<digest>/   the files of one model, named by their content, never changed
    models/<slug>.json    an installed model: its card, facts, digest and size
    staging/              what an add is writing; whatever a crash left is removed by the next one
    lock                  held by the one process that adds or removes

Readers take no lock: a record is replaced in one step, and only after its artifact stands.
"""

import contextlib
import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from shoal.catalog import Card, Folder, Model, Report, Virtual
from shoal.catalog.artifacts import digest_of, place, size_of, sweep
from shoal.catalog.cards import all_cards
from shoal.catalog.inspect import read_facts, settle
from shoal.catalog.names import check_name, name_of_folder, near
from shoal.catalog.records import Records
from shoal.catalog.weights import check_weights
from shoal.protocol.errors import InvalidInput, ModelNotFound
from shoal.protocol.facts import Facts


def silent(stage: str, done: int, total: int) -> None:
    """A `Report` to nobody."""


class Store:
    """`models` and `resolve` look in memory, `refresh` looks at the disk. `problems` says, by name, which
    installed models cannot be served and why.
    """

    def __init__(self, home: Path | None = None) -> None:
        """`home`, else $SHOAL_HOME, else ~/.cache/shoal. Creates nothing."""
        chosen = home or Path(os.environ.get("SHOAL_HOME") or "~/.cache/shoal")
        self.home = chosen.expanduser().absolute()
        self.problems: dict[str, str] = {}
        self._artifacts = self.home / "artifacts"
        self._records = Records(self.home / "models", self._artifacts)
        self._models: dict[str, Model] = {}
        self._seen: object = None
        self.refresh()

    def models(self) -> dict[str, Model]:
        """Name → model, sorted by name; as of the last `refresh`."""
        return self._models

    def cards(self) -> dict[str, Card]:
        """Every card known here, sorted by name: those that come with Shoal, those of installed models."""
        cards = all_cards() | {name: model.card for name, model in self._models.items()}
        return dict(sorted(cards.items()))

    def refresh(self) -> bool:
        """Read the records again if any was written or removed since; whether so."""
        seen = self._records.signature()
        if seen == self._seen:
            return False
        self._models, self.problems = self._records.read()
        self._seen = seen
        return True

    def resolve(self, name: str) -> Model:
        """The model called `name`, exactly or with `__` for its slash. Raises ModelNotFound."""
        if (model := self._find(name)) is not None:
            return model
        if self.refresh() and (model := self._find(name)) is not None:
            return model
        raise self._not_found(name)

    def default_model(self, task: str) -> Model:
        """Where a request names none: a card's own default, else the first by name, stand-ins last."""
        able = [model for model in self._models.values() if task in model.facts.tasks]
        if not able:
            raise ModelNotFound(f"no model here can {task}; `shoal models --all` lists what can be added")
        return min(able, key=lambda m: (not m.card.default, isinstance(m.card.source, Virtual), m.name))

    def add(self, what: str | Path | Card, *, name: str | None = None, report: Report = silent) -> Model:
        """Install a known card by its name, a card given, or a folder. Doing it again changes nothing.

        A folder is read anew each time, and its model replaced if it changed. Raises ModelNotFound,
        InvalidInput with the reason for a refusal, ModelLoadFailed where the files cannot be had.
        """
        card = self._card_for(what, name)
        with self._alone(report):
            self._clean()
            model = self._kept(card, report) or self._install(card, report)
            self._records.write(model)
        self.refresh()
        return model

    def remove(self, name: str) -> None:
        """Forget a model, also one that cannot be served, and delete its files. Raises ModelNotFound."""
        installed = name if name in self.problems else self.resolve(name).name
        with self._alone(silent):
            self._records.remove(installed)
            self._clean()
        self.refresh()

    def verify(self, model: Model, report: Report = silent) -> bool:
        """Whether the model's files are still, byte for byte, what was added. Reads all of them."""
        return model.folder.is_dir() and digest_of(model.folder, report) == model.digest

    def _find(self, name: str) -> Model | None:
        return self._models.get(name) or self._models.get(name.replace("__", "/", 1))

    def _card_for(self, what: str | Path | Card, name: str | None) -> Card:
        """1. A card as given; 2. a known card's name; 3. a folder, by its own name if given none; 4. neither."""
        known = all_cards()
        if isinstance(what, Card):  # 1
            card = what
        elif str(what) in known:  # 2
            card = known[str(what)]
        elif Path(what).expanduser().is_dir():  # 3
            folder = Path(what).expanduser().absolute()
            card = Card(name=name or name_of_folder(folder.resolve().name), source=Folder(path=str(folder)))
        elif isinstance(what, Path) or what.startswith((".", "/", "~")):  # 4
            raise InvalidInput(f"there is no folder {what}")
        else:
            raise self._not_found(what)
        chosen = check_name(name or card.name)
        if chosen in known and known[chosen].source != card.source:
            raise InvalidInput(f"{chosen} is a known model of its own; give this one another name (`--name`)")
        return card if chosen == card.name else msgspec.structs.replace(card, name=chosen, default=False)

    def _kept(self, card: Card, report: Report) -> Model | None:
        """The installed model, if it came from this very source and is whole; its facts by today's card."""
        self.refresh()
        old = self._models.get(card.name)
        if old is None or old.card.source != card.source or isinstance(card.source, Folder):
            return None
        if not self.verify(old, report):
            return None
        return msgspec.structs.replace(old, card=card, facts=_facts(old.folder, card))

    def _install(self, card: Card, report: Report) -> Model:
        source: Any = card.source
        module = importlib.import_module(f"shoal.catalog.{source.__struct_config__.tag}")
        staged = Path(tempfile.mkdtemp(dir=self.home / "staging"))
        staged.chmod(0o755)
        module.fetch(source, staged, report)
        facts = _facts(staged, card)
        size = size_of(staged)
        digest = place(staged, self._artifacts, report)
        return Model(card=card, facts=facts, folder=self._artifacts / digest, digest=digest, size_bytes=size)

    @contextlib.contextmanager
    def _alone(self, report: Report) -> Iterator[None]:
        """Hold the lock that every process's add and rm take. The kernel drops it if we die."""
        import fcntl  # not on Windows, where the rest of this file still works

        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report("waiting for another add or rm", 0, 0)
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _clean(self) -> None:
        """Leave an empty staging folder and only the artifacts that a record names. With the lock held."""
        staging = self.home / "staging"
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(exist_ok=True)
        keep = self._records.digests()
        if keep is not None:
            sweep(self._artifacts, keep)

    def _not_found(self, name: str) -> ModelNotFound:
        """1. Known, but not here; 2. like a known name, here or not; 3. nothing like it."""
        cards, exact = self.cards(), name.replace("__", "/", 1)
        short = name if len(name) <= 100 else f"{name[:100]}…"
        if meant := next((candidate for candidate in (name, exact) if candidate in cards), ""):  # 1
            lead = f"{meant} is known, but its files are not here."
        elif meant := near(exact, cards):  # 2
            lead = f"no model is called {short!r}; did you mean {meant}?"
        else:  # 3
            return ModelNotFound(f"no model is called {short!r}; `shoal models --all` lists the known ones")
        if meant in self._models:
            return ModelNotFound(lead, near=meant)
        return ModelNotFound(f"{lead} Get them with: shoal add {meant}", near=meant, add=f"shoal add {meant}")


def _facts(folder: Path, card: Card) -> Facts:
    if isinstance(card.source, Virtual):
        return settle({"files": "none"}, card.facts)
    facts = read_facts(folder, card.facts)
    check_weights(folder / ("model.safetensors" if facts.files == "safetensors" else "model.onnx"))
    return facts
