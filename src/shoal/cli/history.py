"""`shoal history`: every change of a pushed name."""

from typing import Annotated

import typer

from shoal.cli._asking import DEFAULT_URL, Key, Url


def command(app: typer.Typer) -> None:
    @app.command()
    def history(
        name: Annotated[str, typer.Argument(metavar="NAME", help="Like team/contracts.")],
        as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
        url: Url = DEFAULT_URL,
        api_key: Key = None,
    ) -> None:
        """List who changed what a pushed name means, and when; the latest last."""
        import msgspec

        from shoal.cli import _card
        from shoal.cli._pushed import connect, moment, split

        model, _ = split(name)
        with connect(url, api_key) as client:
            events = client.history(model)
        if as_json:
            typer.echo(msgspec.json.format(msgspec.json.encode(events)).decode())
            return
        rows = [[moment(e["at"]), e["who"], e["what"], e.get("note", "")] for e in events]
        _card.print_table([["WHEN", "WHO", "WHAT", "NOTE"], *rows])
