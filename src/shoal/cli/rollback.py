"""`shoal rollback`: a pushed name, or an alias of it, means again what it meant before."""

from typing import Annotated

import typer

from shoal.cli._asking import DEFAULT_URL, Key, Url


def command(app: typer.Typer) -> None:
    @app.command()
    def rollback(
        name: Annotated[str, typer.Argument(metavar="NAME[@ALIAS]", help="Like team/contracts@prod.")],
        to: Annotated[int, typer.Option(min=0, help="This version; else the one before.")] = 0,
        url: Url = DEFAULT_URL,
        api_key: Key = None,
    ) -> None:
        """Go back to the version before, everywhere within seconds."""
        from shoal.cli._pushed import connect, say, split

        model, alias = split(name)
        with connect(url, api_key) as client:
            say(client.rollback(model, alias, to))
