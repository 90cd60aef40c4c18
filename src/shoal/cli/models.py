"""`shoal models`: what can be served from this disk, what else is known, or one model in detail."""

from typing import TYPE_CHECKING, Any

import typer

from shoal.protocol import sizes

if TYPE_CHECKING:
    from shoal.catalog import Card, Model
    from shoal.catalog.store import Store
    from shoal.cli._pick import Entry


def command(app: typer.Typer) -> None:
    @app.command()
    def models(
        words: list[str] | None = typer.Argument(
            None, metavar="NAME", show_default=False, help="Show this one in detail, or search for these words."
        ),
        task: str = typer.Option("", "--task", help="Only what can do this: encode or score."),
        kind: str = typer.Option("", "--kind", help="Only what gives these: dense, sparse or multivector."),
        family: str = typer.Option("", "--family", help="Only this family, e.g. bert or modernbert."),
        here: bool = typer.Option(False, "--here", help="Only models whose files are here."),
        every: bool = typer.Option(False, "--all", help="Also known models whose files are not here."),
        as_json: bool = typer.Option(False, "--json", help="For programs."),
    ) -> None:
        """List the models that can be served; with a search or a filter, those that are known."""
        from shoal.catalog.store import Store
        from shoal.cli._pick import Asked

        store = Store()
        name = " ".join(words or ())
        asked = Asked(name, task, family, kind)
        found = _found(store, asked, here or not (every or asked))
        if name and " " not in name and (_is_known(store, name) or not found):
            _show_one(store, name, as_json)
        else:
            _show_all(store, found, as_json, is_search=bool(asked))
        for broken, why in store.problems.items():
            typer.echo(f"{broken} cannot be served: {why}", err=True)


def _is_known(store: "Store", name: str) -> bool:
    from shoal.catalog.names import parse_name

    base, cards = parse_name(name).name, store.cards()
    return base in cards or base.replace("__", "/", 1) in cards


def _found(store: "Store", asked: Any, only_here: bool) -> "list[Entry]":
    from shoal.cli._pick import entry_of

    installed = store.models()
    # An adapter stands after its base.
    cards = sorted(store.cards().values(), key=lambda card: (card.base or card.name, bool(card.base), card.name))
    entries = [entry_of(card, installed.get(card.name)) for card in cards]
    asked.check(entries)
    return [entry for entry in entries if (entry.model or not only_here) and asked.fits(entry)]


def _show_one(store: "Store", name: str, as_json: bool) -> None:
    from shoal.catalog.adapter import adapters_of
    from shoal.cli import _card

    card = store.cards().get(name)
    model = store.resolve(name) if card is None or name in store.models() else None
    card = model.card if model else card
    assert card is not None, "resolve raises where there is neither"
    if as_json:
        _print_json(_card.as_data(card, model, is_default=_is_default(store, model)))
        return
    adapters = adapters_of(card.name, store.models())
    _card.print_rows(_card.rows_of(card, model, adapters) + _provenance(card))


def _provenance(card: "Card") -> list[tuple[str, str]]:
    return [("", "")] + [(field, " ".join(words.split())) for field, words in card.provenance.items()]


def _show_all(store: "Store", entries: "list[Entry]", as_json: bool, *, is_search: bool) -> None:
    from shoal.cli import _card

    if as_json:
        _print_json([_card.as_data(e.card, e.model, is_default=_is_default(store, e.model)) for e in entries])
        return
    if not entries:
        lacking = "no model is like that" if is_search else "no model is here yet"
        typer.echo(f"{lacking}; `shoal models --all` lists what `shoal add NAME` can bring", err=True)
        return
    rows = [_row(entry, _is_default(store, entry.model)) for entry in entries]
    _card.print_table([["MODEL", "TASK", "KINDS", "DIMS", "TOKENS", "SIZE", "LICENCE"], *rows])


def _row(entry: "Entry", is_default: bool) -> list[str]:
    from shoal.cli import _card

    task = ", ".join(entry.tasks) + (" (default)" if is_default else "")
    missing = "cannot be served" if entry.card.unservable else "not here"
    size = sizes.in_words(entry.model.size_bytes) if entry.model else missing
    dims, tokens = str(entry.dims or ""), str(entry.max_tokens or "")
    name = f"  + {entry.card.name}" if entry.card.base else entry.card.name
    return [name, task, ", ".join(entry.kinds), dims, tokens, size, _card.licence(entry.card)]


def _is_default(store: "Store", model: "Model | None") -> bool:
    if model is None:
        return False
    return model.card.name in {store.default_model(task).name for task in model.facts.tasks}


def _print_json(data: Any) -> None:
    import msgspec

    typer.echo(msgspec.json.format(msgspec.json.encode(data)).decode())
