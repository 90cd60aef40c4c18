"""What a list of models says of each, and which of them a person asked for. From the files where they are here,
else from what the card tells.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from shoal.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from shoal.catalog import Card, Model


class Entry(msgspec.Struct, frozen=True):
    """`family` by our name and by config.json's; `dims` are of the kind of vector that it gives first; 0 and ()
    stand for what is not known."""

    card: "Any"
    model: "Any"
    tasks: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    dims: int = 0
    max_tokens: int = 0


class Asked(msgspec.Struct, frozen=True):
    """ "" leaves a thing open. `text` is looked for in name, title and languages."""

    text: str = ""
    task: str = ""
    family: str = ""
    kind: str = ""

    def __bool__(self) -> bool:
        return bool(self.text or self.task or self.family or self.kind)

    def check(self, entries: "list[Entry]") -> None:
        """Raises InvalidInput, with what there is, for a task, kind or family that none of all entries has."""
        for option, asked, found in (
            ("task", self.task, [entry.tasks for entry in entries]),
            ("kind", self.kind, [entry.kinds for entry in entries]),
            ("family", self.family, [entry.family for entry in entries]),
        ):
            known = sorted({value for values in found for value in values if value})
            if asked and asked not in known:
                raise InvalidInput(f"--{option} {asked}: no model is known of it; there is {', '.join(known)}")

    def fits(self, entry: Entry) -> bool:
        card = entry.card
        languages = card.listed.languages if card.listed else ()
        hay = " ".join((card.name, card.title, *languages)).casefold()
        return (
            all(word in hay for word in self.text.casefold().split())
            and self.task in ("", *entry.tasks)
            and self.kind in ("", *entry.kinds)
            and self.family in ("", *entry.family)
        )


def entry_of(card: "Card", model: "Model | None") -> Entry:
    """1. Read from its files; 2. told by its card."""
    from shoal.catalog.known import family_of

    if model is not None:  # 1
        facts = model.facts
        kinds = facts.kinds if "encode" in facts.tasks else ()
        first = kinds[:1] == ("multivector",)
        dims = facts.multivector.dims if facts.multivector and first else facts.dims
        said = (card.listed.family,) if card.listed else ()
        return Entry(card, model, facts.tasks, kinds, (facts.family, *said), dims, facts.max_tokens)
    told, facts_said = card.listed, card.facts  # 2
    if told is None:
        tasks: Any = facts_said.get("tasks", ())
        family: Any = facts_said.get("family", "")
        return Entry(card, None, tuple(tasks), ("dense",) if "encode" in tasks else (), (family,))
    tasks = facts_said.get("tasks", (told.task,))
    family = (told.family, family_of(told.family) or told.family)
    return Entry(card, None, tuple(tasks), told.kinds, family, told.dims, told.max_tokens)
