"""Which card is meant by what a person names: a known model, a folder, an archive, a repository on a hub."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from shoal.catalog import Card, Folder, Hub, Tar
from shoal.catalog.missing import not_found
from shoal.catalog.names import check_name, name_of_folder, parse_name
from shoal.protocol.errors import InvalidInput

_ARCHIVES = (".tar", ".tar.gz", ".tgz")


def card_for(what: str | Path | Card, name: str | None, known: Mapping[str, Card]) -> Card:
    """The card to install, called `name` if that is given. Raises ModelNotFound, or InvalidInput for a name
    that cannot be given.

    1. A card as given; 2. a known card's name, maybe at a version; 3. a folder; 4. an archive; 5. what looks
    like a path and is none; 6. `org/name`, maybe at a version, which no card knows, nor in other capitals: on the
    hub; 7. none of it.
    """
    if isinstance(what, Card):  # 1
        return _named(what, name, known)
    path, asked = Path(what).expanduser(), parse_name(str(what))
    if asked.name in known:  # 2
        return _named(_at(known[asked.name], asked.version), name, known)
    if path.is_dir():  # 3
        own = name or name_of_folder(path.resolve().name)
        return _named(Card(name=own, source=Folder(path=str(path.absolute()))), name, known)
    if path.is_file() and path.name.endswith(_ARCHIVES):  # 4
        own = name or name_of_folder(path.name.partition(".t")[0])
        return _named(Card(name=own, source=Tar(path=str(path.absolute()))), name, known)
    if path.is_file():  # 5
        raise InvalidInput(f"{path.name} is a file; a model is a folder, or a {', '.join(_ARCHIVES)} of one")
    if isinstance(what, Path) or what.startswith((".", "/", "~")) or what.endswith(_ARCHIVES):  # 5
        raise InvalidInput(f"there is no folder {what}, nor a .tar or .tar.gz of that name")
    if asked.name.count("/") == 1 and asked.name.casefold() not in map(str.casefold, known):  # 6
        repo = check_name(asked.name)
        return _named(Card(name=repo, source=Hub(repo, asked.version)), name, known)
    raise not_found(what, known, ())  # 7


def _at(card: Card, version: str) -> Card:
    if version in ("", card.revision):
        return card
    if not isinstance(card.source, Hub):
        raise InvalidInput(
            f"{card.name} comes from a {card.source.__struct_config__.tag} and is at revision "
            f"{card.revision or 'unknown'}; only from a hub could it be had at {version}"
        )
    source = msgspec.structs.replace(card.source, revision=version)
    return msgspec.structs.replace(card, source=source, revision=None, verified=False, unservable="")


def _named(card: Card, name: str | None, known: Mapping[str, Card]) -> Card:
    """A name belongs to the model that is known by it, wherever that comes from."""
    chosen = check_name(name or card.name)
    taken = known.get(chosen)
    if taken is not None and taken.source != card.source and not (_repo(taken) and _repo(taken) == _repo(card)):
        raise InvalidInput(f"{chosen} is a known model of its own; give this one another name (`--name`)")
    return card if chosen == card.name else msgspec.structs.replace(card, name=chosen, default=False)


def _repo(card: Card) -> str:
    return card.source.repo if isinstance(card.source, Hub) else ""
