"""`shoal models`: what can be served from this disk, what else is known, or one model in detail."""

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from shoal.catalog import Card, Model
    from shoal.catalog.store import Store


def command(app: typer.Typer) -> None:
    @app.command()
    def models(
        name: str = typer.Argument("", metavar="[NAME]", show_default=False, help="Show this one in detail."),
        every: bool = typer.Option(False, "--all", help="Also known models whose files are not here."),
        as_json: bool = typer.Option(False, "--json", help="For programs."),
    ) -> None:
        """List the models that can be served."""
        from shoal.catalog.store import Store

        store = Store()
        if name:
            _show_one(store, name, as_json)
        else:
            _show_all(store, store.cards() if every else {n: m.card for n, m in store.models().items()}, as_json)
        for broken, why in store.problems.items():
            typer.echo(f"{broken} cannot be served: {why}", err=True)


def _show_one(store: "Store", name: str, as_json: bool) -> None:
    from shoal.cli import _card

    card = store.cards().get(name)
    model = store.resolve(name) if card is None or name in store.models() else None
    card = model.card if model else card
    assert card is not None, "resolve raises where there is neither"
    if as_json:
        _print_json(_card.as_data(card, model, is_default=_is_default(store, model)))
        return
    _card.print_rows(_card.rows_of(card, model) + _provenance(card))


def _provenance(card: "Card") -> list[tuple[str, str]]:
    return [("", "")] + [(field, " ".join(words.split())) for field, words in card.provenance.items()]


def _show_all(store: "Store", cards: "dict[str, Card]", as_json: bool) -> None:
    from shoal.cli import _card

    here = store.models()
    if as_json:
        listed = [(card, here.get(name)) for name, card in cards.items()]
        _print_json([_card.as_data(c, model, is_default=_is_default(store, model)) for c, model in listed])
        return
    if not cards:
        typer.echo("no models here yet; `shoal models --all` lists what `shoal add NAME` can bring", err=True)
        return
    rows = [_row(card, here.get(name), _is_default(store, here.get(name))) for name, card in cards.items()]
    _card.print_table([["MODEL", "TASK", "DIMS", "TOKENS", "SIZE", "LICENCE"], *rows])


def _row(card: "Card", model: "Model | None", is_default: bool) -> list[str]:
    from shoal.cli import _card

    if model is None:
        return [card.name, "", "", "", "not here", card.licence]
    task = ", ".join(model.facts.tasks) + (" (default)" if is_default else "")
    dims, tokens = str(model.facts.dims or ""), str(model.facts.max_tokens)
    return [card.name, task, dims, tokens, _card.megabytes(model.size_bytes), card.licence]


def _is_default(store: "Store", model: "Model | None") -> bool:
    return model is not None and any(store.default_model(task) == model for task in model.facts.tasks)


def _print_json(data: Any) -> None:
    import msgspec

    typer.echo(msgspec.json.format(msgspec.json.encode(data)).decode())
