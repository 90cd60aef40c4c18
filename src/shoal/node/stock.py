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
        self._store, self.pushed = store, pushed
        self.proving: dict[str, Model] = {}

    def resolve(self, name: str) -> Model:
        """By what nodes call it, also a version that was removed a moment ago; or by what clients call it, who
        name an adapter beside its base where no gateway looks. Raises ModelNotFound."""
        if (model := self.proving.get(name)) is not None:
            return model
        asked = parse_name(name)
        pushed = self.pushed.version(f"{asked.name}@{asked.version}") if asked.version else None
        if pushed is None and (pushed := self.pushed.find(asked)) is None:
            return self._store.resolve(name)
        return finding.chosen(parse_name(f"{asked.name}:{asked.variant}"), pushed, {}, {})

    def by_words(self) -> dict[str, Model]:
        """By what clients call them, without versions."""
        return self._store.models() | self.pushed.models()

    def is_told(self, digest: str) -> bool:
        """Whether some pushed name means these files."""
        return digest in self.pushed.digests()

    def models(self) -> dict[str, Model]:
        """By name: what is installed, and of each pushed model what its name and aliases mean. Adapters have no
        line of their own, so that all their versions are here."""
        return self._store.models() | self.pushed.to_know()

    def refresh(self) -> bool:
        return self._store.refresh()
