"""Writes docs/models.md from the cards that come with Shoal; a test holds the page to what this gives."""

from collections.abc import Iterable
from pathlib import Path

from shoal.catalog import Card, Package, Virtual
from shoal.catalog.cards import all_cards
from shoal.catalog.known import family_of
from shoal.catalog.listed import Listed
from shoal.families import all_families

PAGE = Path(__file__).parent.parent / "docs" / "models.md"
HEAD = "| Model | For | Kinds | Dims | Limit | Parameters | Languages | Licence | Source | Verified |"
LINE = "|---|---|---|--:|--:|--:|---|---|---|---|"
FEW = 4
"""So many languages are named; of more only their number."""
Entry = tuple[Card, Listed]

INTRODUCTION = """\
# Models

Shoal comes with {count} cards. A card is one model as data: where its files are, which revision of them, and what
they do not say themselves. `shoal models --all` lists the cards on a terminal, `shoal models NAME` shows one with
where each fact was read, and `shoal add NAME` fetches the files and serves them.

*Limit* is in tokens, markers included. *Dims* is the width of a vector, or of each token's. *Source* is where
the files come from: a model hub, or a wheel in a package registry, pinned by sha256. *Verified* says that the card
names the publisher's revision, as read in a public record that the card names; without it, the newest one is
taken. Facts about models on a hub were read in public records, not in the files: what `shoal add` finds in the
files wins. A blank is a fact that was not looked up. Models marked *on PyTorch* need that extra:
`pip install 'shoal[pytorch]'`.

This page is made by `python scripts/models_page.py`; change a card in `src/shoal/catalog/cards/` and run it again.
"""

OWN = """\
## Your own

A folder, as `save_pretrained` of sentence-transformers or transformers writes it, needs no card:

```sh
shoal add ./my-finetune --name acme/support-encoder
```

Task, family, pooling, prompts and limits are read from its files. They are looked at before anything is served:
pickles and code that a model brings along are refused, and so are architectures that cannot be computed here, each
with the reason.

A card is for a model that many will ask for by name. It is one TOML file in `src/shoal/catalog/cards/`:

```toml
name = "org/model"
title = "What it is good for, in which languages"
licence = "Apache-2.0"
homepage = "https://huggingface.co/org/model"
verified = false

[source]
kind = "hub"
repo = "org/model"

[listed]
task = "encode"
kinds = ["dense"]
family = "bert"
dims = 384

[facts.prompts]
query = "query: "

[provenance]
source = "The publisher's own repository on the hub."
revision = "Not looked up."
licence = "The publisher's card."
listed = "The publisher's card."
"facts.prompts" = "The publisher's card; the files do not say it."
```

`facts` holds only what the files do not say, or say wrongly, by the names of `Facts` in
`src/shoal/protocol/facts.py`. `listed` is for people who do not have the files yet. `provenance` says of
everything where it was read; what could not be looked up is left out.
"""


def page(cards: Iterable[Card]) -> str:
    """The whole page, the same for the same cards."""
    known = [
        (card, card.listed) for card in cards if card.listed is not None and not isinstance(card.source, Virtual)
    ]
    parts = [INTRODUCTION.format(count=len(known))]
    for title, entries in _sections([entry for entry in known if not entry[0].unservable]):
        parts.append(f"## {title}\n\n{HEAD}\n{LINE}\n" + "".join(_row(card, listed) for card, listed in entries))
    refused = "".join(f"| {_link(c)} | {c.title} | {c.unservable} |\n" for c, _ in known if c.unservable)
    why = "Asked for often and not served: `shoal add` refuses them."
    parts.append(f"## Not served\n\n{why}\n\n| Model | For | Why not |\n|---|---|---|\n{refused}")
    return "\n".join([*parts, OWN])


def _sections(known: list[Entry]) -> list[tuple[str, list[Entry]]]:
    """Encoders by the first kind of vector they give, then what scores pairs."""
    encoders = {"dense": "Dense vectors", "sparse": "Sparse vectors", "multivector": "A vector for each token"}
    sections = [(title, [e for e in known if e[1].kinds[:1] == (kind,)]) for kind, title in encoders.items()]
    return [*sections, ("Scores for pairs of texts", [e for e in known if e[1].task == "score"])]


def _row(card: Card, listed: Listed) -> str:
    languages = listed.languages if len(listed.languages) <= FEW else (str(len(listed.languages)),)
    on_pytorch = family_of(listed.family) not in all_families()
    cells = (
        _link(card),
        f"{card.title} (on PyTorch)" if on_pytorch else card.title,
        ", ".join(listed.kinds) or "scores",
        str(listed.dims or ""),
        str(listed.max_tokens or ""),
        f"{listed.parameters / 1e6:.3g}M" if listed.parameters else "",
        ", ".join(languages),
        "not stated" if card.licence == "NOASSERTION" else card.licence,
        "package" if isinstance(card.source, Package) else "hub",
        "yes" if card.verified else "no",
    )
    return f"| {' | '.join(cells)} |\n"


def _link(card: Card) -> str:
    return f"[{card.name}]({card.homepage})"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(all_cards().values()), encoding="utf-8")
