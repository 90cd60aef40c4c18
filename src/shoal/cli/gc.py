"""`shoal gc`: remove what lies in the store and no model needs."""

import typer

from shoal.protocol import sizes


def command(app: typer.Typer) -> None:
    @app.command()
    def gc(dry_run: bool = typer.Option(False, "--dry-run", help="Only say what would be removed.")) -> None:
        """Free the disk of what no installed model needs."""
        from shoal.catalog.store import Store

        store = Store()
        found = store.collect(dry_run=dry_run)
        word = "would remove" if dry_run else "removed"
        for leftover in found:
            name = leftover.path.relative_to(store.home)
            typer.echo(f"{word} {name}: {sizes.in_words(leftover.size_bytes)}, {leftover.why}")
        total = sizes.in_words(sum(leftover.size_bytes for leftover in found))
        typer.echo(f"{'would free' if dry_run else 'freed'} {total}")
