"""`shoal bench`: load on a server until its knee, as a table, a report and a plot; two reports side by side."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from shoal.cli._asking import Key

if TYPE_CHECKING:
    from shoal.lab.ramp import Loads


_KEYS = ("--api-key", "--key")


class _Bench(TyperGroup):
    """`shoal bench URL` is `shoal bench run URL`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args and args[0] in self.commands else ["run", *args])


class _AsTyped(typer.Context):
    """In help and complaints `shoal bench run` is called what it is typed as."""

    @property
    def command_path(self) -> str:
        return self.parent.command_path if self.parent is not None else ""


class _Run(TyperCommand):
    context_class = _AsTyped


def command(app: typer.Typer) -> None:
    bench = typer.Typer(cls=_Bench, rich_markup_mode=None, add_completion=False)
    app.add_typer(
        bench, name="bench", help="Measure a server under load: its knee, latencies, processor and memory."
    )
    _run(bench)
    _compare(bench)


def _run(bench: typer.Typer) -> None:
    @bench.command(cls=_Run)
    def run(
        url: Annotated[str, typer.Argument(metavar="URL", help="Of the server, e.g. http://127.0.0.1:8080.")],
        model: Annotated[str, typer.Option(help="Name of the model, as the server knows it.")],
        api: Annotated[
            Literal["openai", "rerank", "chat", "native"],
            typer.Option(help="openai: embeddings; native: msgpack."),
        ] = "openai",
        mix: Annotated[
            Literal["short", "lognormal", "batch"],
            typer.Option(help="8-16 tokens; median 30, at most 250; 32 short texts a request."),
        ] = "short",
        file: Annotated[
            Path | None,
            typer.Option(
                "--input",
                help="Your own requests: JSON lines of text, query and documents, messages, or whole bodies.",
            ),
        ] = None,
        per_request: Annotated[
            int, typer.Option(min=0, help="Texts or documents a request, if not the mix's own.")
        ] = 0,
        connections: Annotated[
            str, typer.Option(help="How many at once: 1,8,32, or 1..256 and 1.. to double until the knee.")
        ] = "",
        rate: Annotated[
            str, typer.Option(help="Requests a second instead, sent on time whatever comes back: 50,100 or 50..")
        ] = "",
        seconds: Annotated[float, typer.Option(min=0.1, help="Of each load, after its warm-up.")] = 5.0,
        warm_up: Annotated[float, typer.Option(min=0.0, help="Seconds before, which do not count.")] = 1.0,
        rounds: Annotated[int, typer.Option(min=1, help="Measure every load so often, in turn.")] = 1,
        target_ms: Annotated[
            float, typer.Option(min=0.0, help="Find the heaviest load whose p99 is within this.")
        ] = 0.0,
        pid: Annotated[
            list[int] | None, typer.Option(help="Watch this process and its children; may be repeated.")
        ] = None,
        encoding: Annotated[Literal["base64", "float"], typer.Option(help="Of openai's vectors.")] = "base64",
        max_tokens: Annotated[int, typer.Option(min=1, help="Of each answer in a chat.")] = 64,
        seed: Annotated[int, typer.Option(help="Of texts and arrivals.")] = 1,
        api_key: Key = None,
        key: Annotated[str | None, typer.Option(hidden=True)] = None,
        out: Annotated[Path | None, typer.Option(help="Write a report, in JSON.")] = None,
        plot: Annotated[Path | None, typer.Option(help="Write a plot: .png, .jpg, .svg or .pdf.")] = None,
    ) -> None:
        """Load a server ever more until throughput stops growing and latency climbs: its knee.

        `shoal bench compare A.json B.json` sets two reports side by side.
        """
        from shoal.cli._levels import Progress, show
        from shoal.lab import bench, report
        from shoal.lab import plot as picture
        from shoal.lab.wires import Wire

        for path in (out, plot):
            _check_place(path)
        if plot:  # before minutes of load, not after
            picture.kind_of(plot)
            picture.figure_class()
        plan = bench.Plan(
            url=url,
            wire=Wire(api, model, encoding=encoding, max_tokens=max_tokens),
            loads=_loads(connections, rate),
            command=_command(),
            key=key or api_key,
            mix=mix,
            input=file,
            per_request=per_request,
            seed=seed,
            seconds=seconds,
            warm_up_s=warm_up,
            rounds=rounds,
            target_s=target_ms / 1e3,
            pids=tuple(pid or ()),
        )
        with Progress(plan) as progress:
            found = bench.run(plan, progress)
        show(found)
        if out:
            report.write(found, out)
        if plot:
            picture.plot(found, plot)


def _compare(bench: typer.Typer) -> None:
    @bench.command()
    def compare(
        a: Annotated[Path, typer.Argument(metavar="A.json", help="A report.")],
        b: Annotated[Path, typer.Argument(metavar="B.json", help="Another, of the same loads.")],
    ) -> None:
        """Ratios of B to A at each load, with an interval that 95 of 100 measurements like these would hold."""
        from shoal.cli._levels import show_ratios
        from shoal.lab import report
        from shoal.lab.compare import compare as ratios
        from shoal.lab.compare import differences

        one, other = report.read(a), report.read(b)
        for difference in differences(one, other):
            typer.echo(f"note: the two differ in {difference}", err=True)
        show_ratios(ratios(one, other), one.asked.kind)


def _loads(connections: str, rate: str) -> "Loads":
    from shoal.lab.ramp import parse_loads
    from shoal.protocol.errors import InvalidInput

    if connections and rate:
        raise InvalidInput("--connections and --rate are two kinds of load; give one")
    return parse_loads(rate, "rate") if rate else parse_loads(connections or "1..", "connections")


def _check_place(path: Path | None) -> None:
    from shoal.protocol.errors import InvalidInput

    if path is not None and not path.absolute().parent.is_dir():
        raise InvalidInput(f"{path.parent} is no folder")


def _command() -> str:
    """The command line again, without the key."""
    words, is_key = ["shoal"], False
    for word in sys.argv[1:]:
        name, has_value, _ = word.partition("=")
        words.append("..." if is_key else f"{name}=..." if has_value and name in _KEYS else word)
        is_key = word in _KEYS
    return shlex.join(words)
