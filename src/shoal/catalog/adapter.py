"""LoRA adapters in a catalog: which model one changes, and whether it fits that model. What its files hold is read
by families/lora; nothing is computed.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from shoal.catalog import Card, Hub, Model, finding
from shoal.catalog.missing import not_found
from shoal.catalog.names import parse_name
from shoal.catalog.weights import check_file
from shoal.families import all_families, shapes
from shoal.families.lora import WEIGHTS, AdapterConfig, Sites, read_adapter, read_config
from shoal.families.lora_config import CONFIG
from shoal.families.weights import Checkpoint
from shoal.protocol.errors import InvalidInput, ModelLoadFailed


def is_adapter(folder: Path) -> bool:
    return (folder / CONFIG).is_file()


def base_of(folder: Path, asked: str, models: Mapping[str, Model], cards: Mapping[str, Card]) -> Model:
    """The model that the adapter in `folder` changes: the one called `asked`, or else as the adapter itself says.

    Raises InvalidInput where it is not here, or is none that an adapter can be put on; and where the adapter is of
    a kind that is not served.
    """
    config = settings_of(folder)
    name = asked or config.base
    if not name:
        raise InvalidInput(f"{CONFIG} does not say which model this adapter changes; `--base NAME` does")
    base = finding.named(models, parse_name(name).name) or _from(name, models)
    if base is None:
        raise _unknown(name, bool(asked), models, cards)
    if parse_name(name).variant:
        raise InvalidInput(f"an adapter belongs to {base.name}, whose variants all can use it; name that one")
    if base.card.base:
        raise InvalidInput(
            f"{base.name} is an adapter itself, of {base.card.base}; an adapter changes a whole model"
        )
    if base.facts.files == "onnx":
        raise InvalidInput(
            f"{base.name} is here as a published ONNX graph, to which no adapter can be applied; add that model's "
            "safetensors, or merge the adapter into it (peft: `merge_and_unload().save_pretrained(...)`)"
        )
    return base


def check_name(name: str, base: Model, models: Mapping[str, Model]) -> None:
    """Raises InvalidInput where an adapter of that name would take the place of what adapters need."""
    if name == base.card.name:
        raise InvalidInput(f"{name} is the base itself; give the adapter another name (`--name`)")
    if others := adapters_of(name, models):
        raise InvalidInput(f"{name} is the base of {', '.join(others)}; give this one another name (`--name`)")


def settings_of(folder: Path) -> AdapterConfig:
    """Raises InvalidInput where it is no LoRA adapter that can be computed beside its base."""
    try:
        return read_config(folder)
    except ModelLoadFailed as e:
        raise InvalidInput(f"this adapter cannot be served: {e.message}") from e


def check_fit(folder: Path, base: Model) -> None:
    """Raises InvalidInput where the files are broken, or change what that base has not."""
    if not (folder / WEIGHTS).is_file():
        raise InvalidInput(f"an adapter is {CONFIG} and {WEIGHTS}, and the latter is not here")
    check_file(folder / WEIGHTS)
    if base.facts.files == "none":
        return  # a stand-in has no weights
    try:
        read_adapter(folder, sites_of(base))
    except ModelLoadFailed as e:
        raise InvalidInput(f"this adapter does not fit {base.name}: {e.message}") from e


def sites_of(base: Model) -> Sites:
    """The linears of a base that an adapter may change; of a family that only PyTorch computes, all there are.
    Raises ModelLoadFailed."""
    family = all_families().get(base.facts.family)
    if family is None:
        return Checkpoint(base.folder).matrices()
    return shapes.sites_of(family, base.folder, base.facts)


def with_bases(
    models: Mapping[str, Model], problems: Mapping[str, str]
) -> tuple[dict[str, Model], dict[str, str]]:
    """Models and problems by name: adapters have the facts that their bases have now, and without one are none."""
    found, wrong = {}, dict(problems)
    for name, model in models.items():
        base = models.get(model.card.base) if model.card.base else None
        if base is not None and not base.card.base:
            found[name] = msgspec.structs.replace(model, facts=base.facts)
        elif model.card.base:
            wrong[name] = f"its base {model.card.base} is not here; `shoal add {model.card.base}` brings it back"
        else:
            found[name] = model
    return found, wrong


def adapters_of(base: str, models: Mapping[str, Model]) -> list[str]:
    """The names of those that change this model."""
    return [name for name, model in models.items() if model.card.base == base]


def _from(repo: str, models: Mapping[str, Model]) -> Model | None:
    """The model that was brought from a hub's repository of that name, whatever it is called here."""
    own = (m for m in models.values() if isinstance(m.card.source, Hub) and m.card.source.repo == repo)
    return next(own, None)


def _unknown(name: str, was_asked: bool, models: Mapping[str, Model], cards: Mapping[str, Card]) -> InvalidInput:
    """1. It was named by whoever adds the adapter. 2. The adapter's files name it, and it can be had. 3. They name
    a path on somebody's disk, or what nobody knows."""
    if was_asked:  # 1
        return InvalidInput(f"the base is not here: {not_found(name, cards, models).message}")
    if name in cards:  # 2
        return InvalidInput(f"this adapter changes {name}, which is not here. Get it with: shoal add {name}")
    return InvalidInput(  # 3
        f"this adapter says that it changes {name[:200]!r}, and no model here is called so. Say which one it is: "
        "`--base NAME` (`shoal models` lists those that are here)"
    )
