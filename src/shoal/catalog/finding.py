"""Which model a name means, and which one is meant where a request names none. Pure: models in, a model out.

Both catalogs use it: the store of one machine, and what the nodes of a cluster say they hold (shared.py).
"""

from collections.abc import Mapping

import msgspec

from shoal.catalog import Card, Model, Virtual
from shoal.catalog.missing import is_version, no_such_variant, no_such_version, not_found
from shoal.catalog.names import Asked
from shoal.catalog.variants import variants_of
from shoal.protocol.errors import ModelNotFound


def named(models: Mapping[str, Model], name: str) -> Model | None:
    """By its name, exactly or with `__` for its slash."""
    return models.get(name) or models.get(name.replace("__", "/", 1))


def chosen(asked: Asked, model: Model | None, models: Mapping[str, Model], cards: Mapping[str, Card]) -> Model:
    """`model`, or its variant that was asked for. Raises ModelNotFound, saying what there is instead."""
    if model is None:
        raise not_found(asked.name, cards, models)
    if asked.version and not is_version(model.card, asked.version):
        raise no_such_version(model, asked.version)
    if not asked.variant:
        return model
    known = variants_of(model.card, model.facts)
    if asked.variant not in known:
        raise no_such_variant(model, asked.variant, known)
    return msgspec.structs.replace(model, variant=asked.variant)


class Defaults:
    """What `default_model` found, kept for all requests that name none, until the models change."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Model] = {}

    def find(self, models: Mapping[str, Model], task: str, kind: str) -> Model:
        """Raises ModelNotFound."""
        if (task, kind) not in self._found:
            self._found[task, kind] = default_model(models, task, kind)
        return self._found[task, kind]


def default_model(models: Mapping[str, Model], task: str, kind: str = "") -> Model:
    """Where a request names none: a card's own default, else the first by name. Stand-ins come last, and
    before them models with several labels, of which a request must name one; adapters are never meant. `kind` is
    a kind of vector that the model has to give.

    For what every model can do, encoders come first. Raises ModelNotFound.
    """
    whole = [model for model in models.values() if not model.card.base]
    able = [m for m in whole if m.facts.can(task) and kind in ("", *m.facts.kinds)]
    if not able:
        lacking = f"gives {kind} vectors" if kind else f"can {task}"
        wanted = f"--kind {kind}" if kind else "--all"
        raise ModelNotFound(f"no model here {lacking}; `shoal models {wanted}` lists what can be added")
    of_task = [model for model in able if task in model.facts.tasks]
    encoders = [model for model in able if "encode" in model.facts.tasks]
    return min(
        of_task or encoders or able,
        key=lambda m: (
            not m.card.default,
            isinstance(m.card.source, Virtual),
            len(m.facts.labels) > 1,
            m.name,
        ),
    )
