"""`shoal rm`: forget a model and delete its files."""

import typer


def command(app: typer.Typer) -> None:
    @app.command()
    def rm(name: str = typer.Argument(metavar="NAME", help="An installed model.")) -> None:
        """Remove a model that is here."""
        from shoal.catalog.store import Store

        Store().remove(name)
        typer.echo(f"removed {name}")
