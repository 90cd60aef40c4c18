"""The models of one machine: those in its store, and those that were pushed. A gateway and a node that share a
process ask it what `store.Store` answers alone.
"""

from collections.abc import Callable

from shoal.catalog import Card, Model, finding
from shoal.catalog.names import parse_name
from shoal.catalog.pushed import Pushed
from shoal.catalog.store import Store
from shoal.protocol.errors import ModelNotFound


class Stock:
    def __init__(self, store: Store, pushed: Pushed) -> None:
        self.store, self.pushed = store, pushed

    def models(self) -> dict[str, Model]:
        """Name → model, sorted by name; of a pushed one its current version."""
        return merged(self.store.models(), self.pushed)

    def cards(self) -> dict[str, Card]:
        pushed = {name: model.card for name, model in self.pushed.models().items()}
        return dict(sorted((self.store.cards() | pushed).items()))

    def refresh(self) -> bool:
        return self.store.refresh()

    def resolve(self, name: str) -> Model:
        """As `Store.resolve`, pushed models first. Raises ModelNotFound."""
        pushed = found(name, self.pushed)
        return pushed or self.store.resolve(name, self.cards)

    def default_model(self, task: str, kind: str = "") -> Model:
        return default_model(self.store.default_model, self.pushed, task, kind)


def found(name: str, pushed: Pushed) -> Model | None:
    """The pushed model, or its variant; None where nobody pushed that name. Raises ModelNotFound."""
    asked = parse_name(name)
    model = pushed.find(asked)
    if model is None or not asked.variant:
        return model
    return finding.chosen(parse_name(f"{asked.name}:{asked.variant}"), model, {}, {})


def merged(models: dict[str, Model], pushed: Pushed) -> dict[str, Model]:
    return dict(sorted((models | pushed.models()).items())) if pushed.models() else models


def default_model(find: Callable[[str, str], Model], pushed: Pushed, task: str, kind: str) -> Model:
    """What is meant among the models that were not pushed, by `find`. A push changes nothing for requests that
    name no model, unless nothing else could answer them. Adapters are never meant. Raises ModelNotFound."""
    try:
        return find(task, kind)
    except ModelNotFound:
        whole = {name: model for name, model in pushed.models().items() if not model.card.base}
        if not whole:
            raise
        return finding.default_model(whole, task, kind)
