"""`shoal doctor`: whether this machine and its models are fit to serve, and what to do where they are not."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from shoal.cli._checks import Finding

_PORT = 8080
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def command(app: typer.Typer) -> None:
    @app.command()
    def doctor() -> None:
        """Check this machine and its models."""
        has_failed = False
        for finding in _look():
            typer.secho(f"{finding.level:<6}", fg=_COLOURS[finding.level], nl=False)
            typer.echo(finding.what)
            if finding.todo:
                typer.echo(f"      → {finding.todo}")
            has_failed |= finding.level == "fail"
        if has_failed:
            raise typer.Exit(1)


def _look() -> "Iterator[Finding]":
    import platform

    from shoal.catalog.store import Store
    from shoal.cli import _checks as checks

    store = Store()
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    looks: list[Callable[[], Finding | list[Finding]]] = [
        checks.check_python,
        lambda: checks.check_cpu(checks.cpu_flags()),
        lambda: checks.check_memory(checks.available_memory_bytes()),
        lambda: checks.check_disk(checks.free_disk_bytes(store.home), store.home),
        lambda: checks.check_budget(store),
        lambda: checks.check_engine("openvino", "openvino>=2026.0") if is_x86 else [],
        lambda: checks.check_engine("onnxruntime", "onnxruntime>=1.20"),
        lambda: checks.check_store(store),
        lambda: checks.check_models(store),
        lambda: checks.check_runtimes(store),
        lambda: checks.check_port(_PORT),
    ]
    for look in looks:
        found = look()
        yield from found if isinstance(found, list) else [found]
