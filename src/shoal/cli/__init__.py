"""The command line. One file per verb; this file finds them, runs one, and turns errors into sentences.

To add a verb, write a module in this folder with a function

    def command(app: typer.Typer) -> None:
        @app.command()
        def encode(model: str, texts: list[str]) -> None:
            "What `shoal encode --help` says."

Importing such a module must be cheap: it imports typer and nothing else that is slow (rich, httpx, the rooms
it works with) outside the verb's own function. A verb raises ShoalError for what a person can act on; it
prints results to stdout and everything else to stderr; it ends badly by `raise typer.Exit(1)` once it has
said why. A module without `command`, or whose name starts with an underscore, is no verb.
"""

import importlib
import pkgutil
import sys
from collections.abc import Sequence

import typer

from shoal.protocol.errors import ShoalError
from shoal.version import __version__


class Options:
    """What was said before the verb."""

    debug = False


def build_app(options: Options) -> typer.Typer:
    """The app with every verb of this folder; running it fills `options`."""
    app = typer.Typer(
        name="shoal",
        no_args_is_help=True,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @app.callback()
    def shoal(
        version: bool = typer.Option(False, "--version", is_eager=True, callback=_print_version),
        debug: bool = typer.Option(False, "--debug", help="Show the trace of an unexpected error."),
    ) -> None:
        """A fleet of small models on hardware you own."""
        options.debug = debug

    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            command = getattr(importlib.import_module(f"{__name__}.{module.name}"), "command", None)
            if command is not None:
                command(app)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one verb and exit: 0 done, 1 failed and said why, 2 the command itself was mistyped."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = Options()
    options.debug = words[:1] == ["--debug"]  # also for what goes wrong before the app has read it
    try:
        build_app(options)(words, prog_name="shoal")
    except Exception as e:
        if options.debug:
            raise
        typer.echo(explain(e), err=True)
        sys.exit(1)


def explain(error: Exception) -> str:
    """An error as a person should read it. What ShoalError says is meant for them; a stranger's is not."""
    if isinstance(error, ShoalError):
        return f"error: {error.message}\ncode: {error.code}"
    if isinstance(error, OSError):
        told = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else error
        return f"error: {told}"
    return (
        f"error: unexpected {type(error).__name__}: {error}\n"
        "This is a fault in Shoal. `shoal --debug …` with the same words shows where it happened."
    )


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"shoal {__version__}")
        raise typer.Exit
