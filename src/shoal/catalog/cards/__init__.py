"""The cards that come with Shoal: one TOML file a model, in this folder, each field as in `Card`."""

import functools
import tomllib
from importlib import resources

import msgspec
from msgspec.structs import replace

from shoal.catalog import Card
from shoal.catalog.names import check_name
from shoal.protocol.errors import InvalidInput
from shoal.protocol.facts import Facts


@functools.cache
def all_cards() -> dict[str, Card]:
    """Name → card, sorted by name."""
    files = (path for path in resources.files(__name__).iterdir() if path.name.endswith(".toml"))
    cards = [parse_card(path.read_text(encoding="utf-8"), path.name) for path in files]
    return {card.name: card for card in sorted(cards, key=lambda card: card.name)}


def parse_card(text: str, origin: str) -> Card:
    """Raises InvalidInput, naming `origin` and the field, for what is no card."""
    try:
        card = msgspec.convert(tomllib.loads(text), Card)
        check_name(card.name)
        notes = {name: replace(v, note=" ".join(v.note.split())) for name, v in card.variants.items()}
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, InvalidInput) as e:
        raise InvalidInput(f"{origin}: {e}") from e
    if unknown := sorted(set(card.facts) - set(Facts.__struct_fields__)):
        raise InvalidInput(f"{origin}: there is no fact called {', '.join(unknown)}")
    return replace(card, variants=notes)  # without the lines that a TOML file breaks them into
