"""`shoal rm`: forget a model and delete its files; one that was pushed, everywhere."""

from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli._asking import DEFAULT_URL, Key

if TYPE_CHECKING:
    from shoal.client import Client


def command(app: typer.Typer) -> None:
    @app.command()
    def rm(
        ctx: typer.Context,
        name: Annotated[
            str, typer.Argument(metavar="NAME", help="An installed model, or a pushed NAME, NAME@3 or NAME@prod.")
        ],
        url: Annotated[
            str, typer.Option(envvar="SHOAL_URL", help="Remove a pushed one from this server.")
        ] = DEFAULT_URL,
        api_key: Key = None,
    ) -> None:
        """Remove a model that is here; else one that was pushed, or a version or alias of it, from the server."""
        from shoal.catalog.store import Store
        from shoal.cli._pushed import connect
        from shoal.client import ServerUnreachable
        from shoal.protocol.errors import ModelNotFound, NotFound

        source = ctx.get_parameter_source("url")
        with connect(url, api_key) as client:
            if source is not None and source.name == "COMMANDLINE":
                _remove_pushed(client, name)
                return
            try:
                Store().remove(name)
                typer.echo(f"removed {name}")
            except ModelNotFound as lacking:
                try:
                    _remove_pushed(client, name)
                except ServerUnreachable:
                    raise lacking from None
                except NotFound as error:
                    lacking.message += f"; {url} says: {error.message}"
                    raise lacking from None


def _remove_pushed(client: "Client", name: str) -> None:
    from shoal.cli._pushed import say, split

    split(name)
    say(client.remove(name))
