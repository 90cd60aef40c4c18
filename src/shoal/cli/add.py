"""`shoal add`: bring a model's files here, from wherever they are, and say what was found in them."""

import typer


def command(app: typer.Typer) -> None:
    @app.command()
    def add(
        what: str = typer.Argument(
            metavar="NAME_OR_PATH",
            help="A known model, a folder, a .tar or .tar.gz, or org/name[@revision] on the hub.",
        ),
        name: str = typer.Option("", "--name", help="What to call it here, instead of its own name."),
        base: str = typer.Option("", "--base", help="Of a LoRA adapter: the model here that it changes."),
        disk: str = typer.Option("", "--disk", help="What all models may take, like 20GB; else SHOAL_DISK."),
        evict: bool = typer.Option(False, "--evict", help="Remove those used longest ago to stay within it."),
        keep: bool | None = typer.Option(None, "--keep/--no-keep", help="Whether never to remove it for others."),
    ) -> None:
        """Bring a model here, so that it can be served."""
        from shoal.catalog.store import Store
        from shoal.cli import _card
        from shoal.cli._progress import progress

        try:
            with progress() as report:
                model = Store().add(
                    what, name=name or None, report=report, disk=disk, evict=evict, keep=keep, base=base
                )
        except KeyboardInterrupt:
            typer.echo("interrupted: nothing was added; add it again to go on", err=True)
            raise typer.Exit(130) from None
        _card.print_rows(_card.rows_of(model.card, model))
