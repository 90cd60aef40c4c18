"""`shoal push`: a model or a LoRA adapter in a folder becomes the next version of a name, served by all."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli._asking import DEFAULT_URL, Key, Url
from shoal.cli._pushed import Note
from shoal.protocol import sizes

if TYPE_CHECKING:
    from shoal.catalog import Model
    from shoal.client import Pushed


def command(app: typer.Typer) -> None:
    @app.command()
    def push(
        folder: Annotated[
            Path, typer.Argument(metavar="FOLDER", help="As save_pretrained wrote it, or a .tar or .tar.gz of it.")
        ],
        name: Annotated[str, typer.Option(help="What to call it, like team/contracts.")],
        base: Annotated[
            str | None, typer.Option(help="Of a LoRA adapter: the model that it changes, if its files do not say.")
        ] = None,
        reference: Annotated[
            Path | None,
            typer.Option(help="What it should give: lines as of `shoal encode --json`, or an .npz; compared."),
        ] = None,
        note: Note = "",
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Prove it, and keep nothing.")] = False,
        url: Url = DEFAULT_URL,
        api_key: Key = None,
    ) -> None:
        """Let a server, and its whole cluster, serve a model from a folder here."""
        from shoal.cli import _card
        from shoal.cli._progress import progress
        from shoal.cli._pushed import connect

        try:
            with connect(url, api_key) as client, progress() as report:
                done = client.push(
                    folder, name, base=base, reference=reference, note=note, dry_run=dry_run, progress=report
                )
        except KeyboardInterrupt:
            typer.echo("interrupted: nothing was pushed; push it again to go on", err=True)
            raise typer.Exit(130) from None
        _card.print_rows(_rows(done, note))
        if done.version:
            typer.echo(f"\nAsk it: {_ask(done)}")


def _rows(done: "Pushed", note: str) -> list[tuple[str, str]]:
    from shoal.cli import _card

    tried = "could be pushed; nothing was kept"
    rows = [("model", f"{done.name}, version {done.version}" if done.version else f"{done.name} {tried}")]
    if done.version and not done.new:
        rows += [("", "which has the same files" + ("; the note went into its history" if note else ""))]
    rows += [("base", done.base), *_card.what_it_does(_model(done))]
    sent = "nothing had to be sent" if not done.sent_bytes else f"{sizes.in_words(done.sent_bytes)} sent"
    rows += [
        ("size", f"{sizes.in_words(done.size_bytes)}, {sent}"),
        ("proof", _proof(done)),
        ("digest", done.digest),
    ]
    return [(label, words) for label, words in rows if words]


def _proof(done: "Pushed") -> str:
    where = f"loaded once and computed on {done.node or 'a node'}"
    if not done.rows_compared:
        return f"{where}; no reference was given to compare with"
    rows = f"{done.rows_compared} row{'' if done.rows_compared == 1 else 's'}"
    return f"{where}; of {rows} compared with the reference the worst agrees to {done.nearest:.6f}"


def _ask(done: "Pushed") -> str:
    if "encode" in done.facts.get("tasks", ()):
        return f'shoal encode {done.name} "a text"'
    return f'shoal score {done.name} "a question" "a document" "another"'


def _model(done: "Pushed") -> "Model":
    """As far as it is needed to be shown."""
    import msgspec

    from shoal.catalog import Card, Model
    from shoal.protocol.facts import Facts

    return Model(
        card=msgspec.convert(done.card, Card),
        facts=msgspec.convert(done.facts, Facts),
        folder=Path(),
        digest=done.digest,
        size_bytes=done.size_bytes,
    )
