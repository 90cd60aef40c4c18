"""Which models a node may be asked for: taken up as they are added, replaced or removed, with what was measured.

It tells the scheduler. It knows the catalog by two calls, profiles and the measurements on disk; no queue, no
process.
"""

import logging
import time
from typing import Protocol

from shoal.catalog import Model
from shoal.catalog.profiles import Profiles
from shoal.node import devices
from shoal.node.measured import MeasuredStore
from shoal.node.scheduler import Scheduler
from shoal.observe import log as logs
from shoal.protocol.errors import InvalidInput, ModelLoadFailed, ModelNotFound, ShoalError
from shoal.protocol.facts import Profile

log = logging.getLogger("shoal.node")


class Models(Protocol):
    def resolve(self, name: str) -> Model: ...
    def models(self) -> dict[str, Model]: ...
    def refresh(self) -> bool: ...


class Roster:
    def __init__(
        self,
        models: Models,
        measured: MeasuredStore,
        profiles: Profiles,
        scheduler: Scheduler,
        pins: frozenset[str] = frozenset(),
    ) -> None:
        """`pins` are as they were given: of a pushed model its name, say, whatever version that means by now."""
        self._models, self._measured, self._profiles = models, measured, profiles
        self._scheduler, self._pins = scheduler, pins
        self.adapters: dict[str, Model] = {}
        """The LoRA adapters here, by name. They wait in the lines of their bases and have none of their own."""

    def take_up(self, name: str, *, anew: bool = False) -> None:
        """Raises ModelNotFound (and what else `resolve` does) for a name that means nothing here, InvalidInput for
        an adapter's. `anew`: profiles have changed, so what is known of it may be old even if its files are the
        same.
        """
        model = self._models.resolve(name)
        if model.card.base:
            raise InvalidInput(f"{name} is an adapter; the model to load is its base, {model.card.base}")
        self._know(model, anew)

    def adapter(self, name: str, of: Model) -> Model:
        """The LoRA adapter of that name, for a request to `of`. Raises ModelNotFound, or InvalidInput for what is
        no adapter, or one of another model.
        """
        try:
            found = self._models.resolve(name)
        except ModelNotFound as error:
            own = sorted(n for n, adapter in self.adapters.items() if adapter.card.base == of.plain_name)
            known = f"it has {', '.join(own[:5])}" if own else f"it has none here; {error.message}"
            raise ModelNotFound(
                f"no adapter named {name[:200]!r} of {of.plain_name}: {known}", adapter=name[:200]
            ) from error
        if not found.card.base:
            raise InvalidInput(f"{name[:200]} is no adapter, but a model of its own")
        if found.card.base != of.plain_name:
            raise InvalidInput(f"{found.name} is an adapter of {found.card.base}, not of {of.plain_name}")
        if found.base_digest not in ("", of.digest):
            raise ModelLoadFailed(
                f"{found.name} was made for other files of {of.plain_name} than this node has "
                f"({found.base_digest[:12]}, here {of.digest[:12]}); push it again, or bring those files back",
                permanent=True,
            )
        return found

    def knows_adapter(self, name: str) -> bool:
        try:
            return bool(self._models.resolve(name).card.base)
        except ShoalError:
            return False

    def refresh(self) -> None:
        """Take up models that were added, let go of those that were removed, replaced or measured anew."""
        self._models.refresh()
        anew = self._profiles.refresh()
        adapters: dict[str, Model] = {}
        for model in self._models.models().values():
            if model.card.base:
                adapters[model.name] = model
            else:
                self._know_if_can(model, anew)
        self._know_adapters(adapters)
        for name in list(self._scheduler.lines):
            try:
                model = self._models.resolve(name)
            except ShoalError:
                self._scheduler.forget(name, time.time())
            else:
                self._know_if_can(model, anew)

        if self._pins:
            self._scheduler.pin({self._meant(pin) for pin in self._pins}, time.time())

    def _meant(self, pin: str) -> str:
        try:
            return self._models.resolve(pin).name
        except ShoalError:  # removed since
            return pin

    def remember(self) -> None:
        """Keep what was learned since the last time on disk."""
        for line in self._scheduler.lines.values():
            if line.learner.cost.seen > line.known.cost.seen:
                line.known.cost = line.learner.cost
                self._measured.save(line.model.digest, _way(line.model, line.profile), line.known)

    def _know_adapters(self, adapters: dict[str, Model]) -> None:
        before = self.adapters
        self.adapters = {name: old if (old := before.get(name)) == new else new for name, new in adapters.items()}
        for name in self.adapters.keys() - before.keys():
            self._scheduler.taking.named(self.adapters[name])
        digests = {model.digest for model in adapters.values()}
        for name, old in before.items():
            if old.digest not in digests:
                self._scheduler.taking.replaced(old, self.adapters.get(name), time.time())

    def _know_if_can(self, model: Model, anew: bool) -> None:
        try:
            self._know(model, anew)
        except ShoalError as error:
            log.error("a model cannot be served here", extra=logs.fields(model=model.name, reason=error.message))

    def _know(self, model: Model, anew: bool) -> None:
        """1. As it was. 2. What was proved here has got its name. 3. New, or other than it was."""
        known = self._scheduler.lines.get(model.name)
        if known is not None and known.model.digest == model.digest and not (anew or known.removed_at):  # 1
            return
        if known is None and (proved := self._proved(model)):  # 2
            self._scheduler.private.rename(proved, model, time.time())
            return
        profile = devices.profile_for(model, self._profiles)  # 3
        measured = self._measured.load(model.digest, _way(model, profile))
        if measured.footprint_bytes > devices.memory_bytes():
            measured.footprint_bytes = 0  # of another machine, or nonsense
        self._scheduler.know(model, profile, measured, time.time())

    def _proved(self, model: Model) -> str:
        """The line of our own in which these files were proved; "" for none."""
        lines = self._scheduler.lines.values() if model.version and not model.variant else ()
        return next((x.model.name for x in lines if x.is_proved and x.model.digest == model.digest), "")


def _way(model: Model, profile: Profile) -> str:
    """What is measured holds for one runtime and one variant of the same files."""
    return f"{profile.runtime}.{model.variant}" if model.variant else profile.runtime
