"""`shoal gate`: whether a model in bf16 is still the same model, measured here, and what follows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from shoal.lab.gate_run import Verdict


def command(app: typer.Typer) -> None:
    @app.command()
    def gate(
        model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of a model that is here.")],
        pairs: Annotated[
            Path | None, typer.Option(help="JSON lines of query and document, which answers it: yours to rank.")
        ] = None,
        dtype: Annotated[
            Literal["bf16", "int8"],
            typer.Option(help="What to compare; of int8, a variant, nothing is kept."),
        ] = "bf16",
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide, and leave everything as it is.")] = False,
    ) -> None:
        """Compute a model in fp32 and in bf16, compare, and keep what follows as its profile.

        Ends with 1 where the fewer bits did not pass. A running server takes the profile up within seconds.
        """
        from shoal.catalog.profiles import Profiles
        from shoal.catalog.store import Store
        from shoal.lab.gate_run import judge
        from shoal.lab.gate_texts import make_trial, read_pairs
        from shoal.node import devices
        from shoal.protocol.errors import InvalidInput

        store = Store()
        found = store.resolve(model)
        if found.variant:
            raise InvalidInput(f"{model} is a variant, which keeps its dtype; name the model itself")
        if found.card.base:
            raise InvalidInput(f"{model} is an adapter, computed in the dtype of {found.card.base}; name that")
        trial = make_trial(found.facts, read_pairs(pairs) if pairs else ())
        verdict = judge(found, dtype, trial, lambda words: typer.echo(words, err=True))
        profiles = Profiles(store.home, devices.kind())
        typer.echo(f"{found.name}: {dtype} beside fp32, {verdict.engine} on {profiles.kind}")
        _print_figures(verdict)
        if dtype == "int8":
            typer.echo(f"decided: {_of_variant(found.name, verdict)}")
            raise typer.Exit(0 if verdict.passed else 1)
        kept = verdict.kept(f"shoal gate {found.name}" + (f" --pairs {pairs.name}" if pairs else ""))
        typer.echo(f"decided: {kept.dtype}, at a tolerance of {kept.tolerance:.5f}")
        if dry_run:
            typer.echo("nothing was written, as --dry-run asks")
        else:
            typer.echo(f"kept as {profiles.write(found, kept)}")
        if not verdict.passed:
            raise typer.Exit(1)


def _of_variant(name: str, verdict: "Verdict") -> str:
    """What becomes of 8 bits, which no profile decides on: a user chooses them by the model's name."""
    if not verdict.promised:
        outcome = "would pass" if verdict.passed else "does not pass"
        return f"int8 {outcome} the bars of bf16; {name} offers no variant of it"
    outcome = "is" if verdict.passed else "is not"
    return f"{name}:int8 {outcome} as good as it is listed, at a tolerance of {verdict.promised:g}"


def _print_figures(verdict: "Verdict") -> None:
    from shoal.cli import _card

    rows = [["", "VALUE", "BAR", "FIGURE"]]
    for figure in verdict.figures:
        bar = f"{figure.sign} {figure.bar:g}" if figure.sign else ""
        word = ("passed" if figure.passed else "failed") if bar else ""
        rows.append([word, f"{figure.value:.6f}", bar, figure.what])
    _card.print_table(rows)
