"""What a node can be asked for, by what nodes call it: models of its store, versions that were pushed, and what it
is proving just now. A gateway asks `catalog.stock` instead, by what clients call it.
"""

from shoal.catalog import Model, finding
from shoal.catalog.names import parse_name
from shoal.catalog.pushed import Pushed
from shoal.catalog.store import Store


class NodeStock:
    """`proving` are models that nobody can ask for yet, by their names."""

    def __init__(self, store: Store, pushed: Pushed) -> None:
        self._store, self._pushed = store, pushed
        self.proving: dict[str, Model] = {}

    def resolve(self, name: str) -> Model:
        """Also a version that was removed a moment ago. Raises ModelNotFound."""
        if (model := self.proving.get(name)) is not None:
            return model
        asked = parse_name(name)
        pushed = self._pushed.version(f"{asked.name}@{asked.version}") if asked.version else None
        if pushed is None:
            return self._store.resolve(name)
        return finding.chosen(parse_name(f"{asked.name}:{asked.variant}"), pushed, {}, {})

    def base(self, name: str) -> Model:
        """The model that an adapter is for, by what its pusher calls it. Raises ModelNotFound."""
        asked = parse_name(name)
        return self._pushed.find(asked) or self._store.resolve(name)

    def models(self) -> dict[str, Model]:
        """By name: what is installed, what is current of each pushed name, and what is proved."""
        pushed = {model.name: model for model in self._pushed.models().values()}
        return self._store.models() | pushed | self.proving

    def refresh(self) -> bool:
        return self._store.refresh()
