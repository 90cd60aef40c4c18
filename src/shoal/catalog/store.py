"""The models on this disk: added, removed, found by name. One folder, shared by every Shoal process here:

    artifacts/<digest>/   the files of one model, named by their content, never changed
    models/<slug>.json    an installed model: its card, facts, digest and size
    staging/              what an add is writing; whatever a crash left is removed by the next one
    profiles/             what was settled of models by measuring them here (profiles.Profiles)
    fetched/, fetching/   copies of pushed models, which may go at any time (copies.Copies)
    downloads/            what came of a hub's files before an add was interrupted; the next goes on from there
    lock                  held by the one process that adds or removes

Readers take no lock: a record is replaced in one step, and only after its artifact stands.
"""

import contextlib
import importlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from shoal.catalog import Card, Folder, Model, Report, Taking, Tar, Virtual, finding
from shoal.catalog import leftovers as leftover_files
from shoal.catalog.adapter import adapters_of, base_of, check_fit, check_name, is_adapter, with_bases
from shoal.catalog.artifacts import digest_of, need_space, place, size_of, sweep
from shoal.catalog.budget import disk_budget, taken_by, to_evict
from shoal.catalog.cards import all_cards
from shoal.catalog.copies import Copies
from shoal.catalog.inspect import read_facts
from shoal.catalog.leftovers import Leftover
from shoal.catalog.names import parse_name
from shoal.catalog.readme import licence_of
from shoal.catalog.records import Records
from shoal.catalog.settle import settle
from shoal.catalog.tables import write_table
from shoal.catalog.wanted import card_for
from shoal.catalog.weights import check_model, check_weights
from shoal.protocol.errors import InvalidInput
from shoal.protocol.facts import Facts


def silent(stage: str, done: int, total: int) -> None:
    """A `Report` to nobody."""


class Store:
    """`models` and `resolve` look in memory, `refresh` looks at the disk. `problems` says, by name, which
    installed models cannot be served and why.
    """

    def __init__(self, home: Path | None = None) -> None:
        """`home`, else $SHOAL_HOME, else ~/.cache/shoal. Creates nothing."""
        self.home = (home or Path(os.environ.get("SHOAL_HOME") or "~/.cache/shoal")).expanduser().absolute()
        self.problems: dict[str, str] = {}
        self.copies = Copies(self.home)
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
        self._models, self.problems = with_bases(*self._records.read())
        self._seen = seen
        self._defaults = finding.Defaults()
        return True

    def resolve(self, name: str, cards: Callable[[], Mapping[str, Card]] | None = None) -> Model:
        """The model called `name`, exactly or with `__` for its slash, maybe `@version` and `:variant`.

        Raises ModelNotFound, saying what there is instead, by `cards` or those that are known here.
        """
        asked = parse_name(name)
        model = finding.named(self._models, asked.name)
        if model is None and self.refresh():
            model = finding.named(self._models, asked.name)
        return finding.chosen(asked, model, self._models, (cards or self.cards)() if model is None else {})

    def default_model(self, task: str, kind: str = "") -> Model:
        """Where a request names none (finding.default_model). Raises ModelNotFound."""
        return self._defaults.find(self._models, task, kind)

    def add(
        self,
        what: str | Path | Card,
        *,
        name: str | None = None,
        report: Report = silent,
        disk: str = "",
        evict: bool = False,
        keep: bool | None = None,
        base: str = "",
    ) -> Model:
        """Install a known card by its name, a card given, a folder, an archive, or `org/name` from a hub.

        Doing it again changes nothing, but for a folder or archive, which is read anew each time. `disk` bounds
        what all models may take (else $SHOAL_DISK), `evict` lets others go for this one, but for those to
        `keep`. `base` names the model that a LoRA adapter changes, where its files do not. Raises ModelNotFound,
        InvalidInput with the reason for a refusal, ModelLoadFailed where the files cannot be had,
        ResourceExhausted where they do not fit.
        """
        card = card_for(what, name, all_cards())
        card = msgspec.structs.replace(card, base=base) if base else card
        if card.unservable:
            raise InvalidInput(
                f"{card.name} cannot be served, as far as its card knows: {card.unservable}. Another revision can "
                f"be tried: shoal add {card.name}@main"
            )
        budget = disk_budget(disk)
        with self._alone(report):
            self._clean()
            old = self._models.get(card.name)
            model = self._kept(card, report) or self._install(card, report, budget, evict)
            kept = bool(old and old.keep) if keep is None else keep
            model = msgspec.structs.replace(model, keep=kept)
            self._records.write(model)
        self.refresh()
        return model

    def remove(self, name: str) -> None:
        """Forget a model, also one that cannot be served, and delete its files. Raises ModelNotFound."""
        if parse_name(name).variant:
            raise InvalidInput(
                f"{name} has no files of its own; `shoal rm {parse_name(name).name}` removes the model"
            )
        installed = name if name in self.problems else self.resolve(name).name
        if adapters := adapters_of(installed, self._models):
            raise InvalidInput(
                f"{installed} has adapters here, which are nothing without it: remove {', '.join(adapters)} before"
            )
        with self._alone(silent):
            self._records.remove(installed)
            self._clean()
        self.refresh()

    def collect(self, *, dry_run: bool = False) -> list[Leftover]:
        """Remove what no installed model needs; what that was. A download begun is then begun anew."""
        if not self.home.is_dir():
            return []
        with self._alone(silent):
            found = self.leftovers()
            for leftover in () if dry_run else found:
                leftover_files.remove(leftover)
        return found

    def leftovers(self) -> list[Leftover]:
        """What `collect` would remove, as far as can be told while others add and remove."""
        return list(leftover_files.find(self.home, self._records.digests()))

    def folder_of(self, digest: str) -> Path:
        """Where the files of a pushed model stand, or will once they were fetched."""
        installed = self._artifacts / digest
        return installed if installed.is_dir() else self.copies.path(digest)

    def make_room_for_copy(self, size_bytes: int) -> None:
        """Other copies go for it where that is needed, installed models never. Raises ResourceExhausted."""
        self.home.mkdir(parents=True, exist_ok=True)
        budget = disk_budget()
        with self._alone(silent) if budget else contextlib.nullcontext():
            self.copies.make_room(taken_by(self._models), size_bytes, budget)
            if budget:
                to_evict(self._models, {}, size_bytes, budget, may_evict=False)
        need_space(self.home, size_bytes)

    def verify(self, model: Model, report: Report = silent) -> bool:
        """Whether the model's files are still, byte for byte, what was added. Reads all of them."""
        return model.folder.is_dir() and digest_of(model.folder, report) == model.digest

    def _kept(self, card: Card, report: Report) -> Model | None:
        """The installed model, if it came from this very source and is whole; its facts by today's card."""
        self.refresh()
        old = self._models.get(card.name)
        if old is None or old.card.source != card.source or isinstance(card.source, Folder | Tar):
            return None
        if not self.verify(old, report):
            return None
        card = _completed(card, old.folder, old.card.revision)
        card, facts = self._described(old.folder, msgspec.structs.replace(card, base=card.base or old.card.base))
        return msgspec.structs.replace(old, card=card, facts=facts)

    def _install(self, card: Card, report: Report, budget: int, evict: bool) -> Model:
        source: Any = card.source
        module = importlib.import_module(f"shoal.catalog.{source.__struct_config__.tag}")
        staged = Path(tempfile.mkdtemp(dir=self.home / "staging"))
        staged.chmod(0o755)
        taking = Taking(
            report,
            lambda size: self._make_room(card, size, budget, evict),
            lambda: self._look(staged, card),
            self.home / "downloads",
        )
        try:
            revision = module.fetch(source, staged, taking)
            write_table(staged)
            card, facts = self._described(staged, card)
            card = _completed(card, staged, revision)
            size = size_of(staged)
            digest = place(staged, self._artifacts, report)
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)  # what is refused takes no room until the next add
            raise
        return Model(card=card, facts=facts, folder=self._artifacts / digest, digest=digest, size_bytes=size)

    def _make_room(self, card: Card, size_bytes: int, budget: int, evict: bool) -> None:
        """So that `size_bytes` may be written for `card`, whose own old files do not count."""
        if budget:
            others = {name: model for name, model in self._models.items() if name != card.name}
            self.copies.make_room(taken_by(others), size_bytes, budget)
            for name in to_evict(others, self._used_at(), size_bytes, budget, may_evict=evict):
                self._records.remove(name)
            self._clean(but_staging=True)
            self.refresh()
        need_space(self.home, size_bytes)

    def _look(self, staged: Path, card: Card) -> None:
        """Before the weights are there: whatever the other files say that cannot be served."""
        if is_adapter(staged):
            base_of(staged, card.base, self._models, self.cards())
        else:
            read_facts(staged, card.facts, is_whole=False)

    def _described(self, folder: Path, card: Card) -> tuple[Card, Facts]:
        """The card as its files complete it, and the facts; an adapter's are its base's."""
        if is_adapter(folder):
            base = base_of(folder, card.base, self._models, self.cards())
            check_name(card.name, base, self._models)
            check_fit(folder, base)
            return msgspec.structs.replace(card, base=base.card.name), base.facts
        if card.base:
            raise InvalidInput("a base is named for LoRA adapters; these files are a model of their own")
        return card, _facts(folder, card)

    def _used_at(self) -> dict[str, float]:
        """When each model was added, or last computed as far as was measured; seconds since the epoch."""
        ran, added = leftover_files.measured_at(self.home), self._records.written_at()
        return {
            name: max(added.get(name, 0.0), ran.get(model.digest[: leftover_files.DIGITS_IN_MEASURED], 0.0))
            for name, model in self._models.items()
        }

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

    def _clean(self, *, but_staging: bool = False) -> None:
        """Leave an empty staging folder and only the artifacts that a record names. With the lock held."""
        if not but_staging:
            staging = self.home / "staging"
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir(exist_ok=True)
        keep = self._records.digests()
        if keep is not None:
            sweep(self._artifacts, keep)


def checked(folder: Path, card: Card) -> tuple[Card, Facts]:
    """What `add` would make of the files in `folder`. Raises InvalidInput."""
    return _completed(card, folder, card.revision), _facts(folder, card)


def _facts(folder: Path, card: Card) -> Facts:
    if isinstance(card.source, Virtual):
        return settle({"files": "none"}, card.facts)
    facts = read_facts(folder, card.facts)
    check_weights(folder)
    check_model(folder, facts)
    return facts


def _completed(card: Card, folder: Path, revision: str | None) -> Card:
    """With what the files say of themselves, where the card does not."""
    return msgspec.structs.replace(
        card, revision=revision or card.revision, licence=card.licence or licence_of(folder)
    )
