"""`shoal score`: documents ranked by how well they answer a query, by a running server."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli._asking import DEFAULT_URL, Key, Url, complain, connect, gather

if TYPE_CHECKING:
    from shoal.client import Ranked


def command(app: typer.Typer) -> None:
    @app.command()
    def score(
        model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.")],
        query: Annotated[str, typer.Argument(metavar="QUERY", help="What the documents should answer.")],
        documents: Annotated[list[str] | None, typer.Argument(metavar="DOC", help="Documents to rank.")] = None,
        file: Annotated[str | None, typer.Option(help="A document a line; - reads stdin.")] = None,
        url: Url = DEFAULT_URL,
        api_key: Key = None,
        top_n: Annotated[int | None, typer.Option(min=1, help="Only so many of the best.")] = None,
        label: Annotated[
            str | None, typer.Option(help="Which output of a model with several labels is the score.")
        ] = None,
        prompt: Annotated[str | None, typer.Option(help="Apply the model's prompt of this name.")] = None,
        raw: Annotated[bool, typer.Option("--raw", help="Logits as they leave the model.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each.")] = False,
    ) -> None:
        """Rank documents for a query."""
        from shoal.client import ItemsFailed

        given = gather(documents, file, "documents")
        show = _print_json if as_json else _print_table
        with connect(url, api_key, is_bulk=file is not None) as client:
            try:
                show(client.score(model, query, given, top_n=top_n, raw=raw, label=label, prompt_name=prompt))
            except ItemsFailed as e:
                show(e.results[:top_n])
                for index in e.indices:
                    complain(index, e.errors[index])
                raise


def _print_table(ranking: "Sequence[Ranked]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("rank", "score", "number", "document", box=None, pad_edge=False)
    for column in table.columns[:3]:
        column.justify = "right"
    for rank, entry in enumerate(ranking, 1):
        # Text, because a document may hold what rich takes for markup.
        document = Text(" ".join(str(entry.document).split()), overflow="ellipsis", no_wrap=True)
        table.add_row(str(rank), f"{entry.score:.5f}", str(entry.index + 1), document)
    # Documents are cut to a terminal's width, but whole for whatever else reads them.
    Console(width=None if sys.stdout.isatty() else 10_000).print(table)


def _print_json(ranking: "Sequence[Ranked]") -> None:
    import msgspec

    for entry in ranking:
        line = {"index": entry.index, "score": entry.score, "document": entry.document}
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
