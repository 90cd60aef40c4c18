"""What to say of a name that no installed model answers to: what is near it, and how to get it. Pure."""

from collections.abc import Collection, Mapping

from shoal.catalog import Card, Model, Variant
from shoal.catalog.cards import all_cards
from shoal.catalog.names import near
from shoal.protocol.errors import ModelNotFound


def not_found(name: str, cards: Mapping[str, Card], installed: Collection[str]) -> ModelNotFound:
    """1. Known, but not here; 2. like a known name, here or not; 3. nothing like it."""
    exact = name.replace("__", "/", 1)
    short = name if len(name) <= 100 else f"{name[:100]}…"
    if meant := next((candidate for candidate in (name, exact) if candidate in cards), ""):  # 1
        lead = f"{meant} is known, but its files are not here."
    elif meant := near(exact, cards):  # 2
        lead = f"no model is called {short!r}; did you mean {meant}?"
    else:  # 3
        return ModelNotFound(f"no model is called {short!r}; `shoal models --all` lists the known ones")
    if meant in installed or meant not in all_cards():  # what has no card that comes with Shoal was pushed
        return ModelNotFound(lead, near=meant)
    return ModelNotFound(f"{lead} Get them with: shoal add {meant}", near=meant, add=f"shoal add {meant}")


def no_such_version(model: Model, version: str) -> ModelNotFound:
    here = f"revision {model.card.revision}" if model.card.revision else "a revision that its card does not know"
    return ModelNotFound(
        f"{model.card.name} is here at {here}, not at {version[:100]!r}", revision=model.card.revision
    )


def no_such_variant(model: Model, variant: str, known: Mapping[str, Variant]) -> ModelNotFound:
    names = ", ".join(f"{model.card.name}:{name}" for name in known) or "none"
    return ModelNotFound(
        f"{model.card.name} has no variant {variant[:100]!r}; it has: {names}", variants=list(known)
    )


def is_version(card: Card, version: str) -> bool:
    """Whether `version` names the revision that is here: the commit, its first seven digits or more, or the
    tag or branch that it was asked for by.
    """
    commit = card.revision or ""
    is_prefix = len(version) >= 7 and commit.startswith(version)
    return is_prefix or version in (commit, getattr(card.source, "revision", None) or commit)
