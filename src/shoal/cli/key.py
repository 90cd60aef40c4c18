"""`shoal key`: keys for a server, made, listed and revoked where it looks for them, in the object store."""

import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from shoal.cli._objects import ObjectsUrl
from shoal.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from shoal.catalog.keys import Key, Keys

T = TypeVar("T")
_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
WithId = Annotated[str, typer.Argument(metavar="NAME_OR_ID", help="As `shoal key list` shows it.")]


def command(app: typer.Typer) -> None:
    key = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True)
    app.add_typer(key, name="key", help="Make, list and revoke the keys that a server asks for.")
    _create(key)
    _list(key)
    _revoke(key)


def _create(key: typer.Typer) -> None:
    @key.command()
    def create(
        name: Annotated[str, typer.Option(help="Who or what will use it.")],
        scope: Annotated[
            list[str], typer.Option(help="infer, push:<names> such as push:team/*, or admin; may be repeated.")
        ],
        expires: Annotated[str, typer.Option(help="After 30d, 12h or 90m, or on a day as 2027-01-31.")] = "",
        objects: ObjectsUrl = "",
    ) -> None:
        """Make a key. It is printed once, and kept nowhere but by you."""
        now = time.time()
        until = moment(expires, now) if expires else None
        plain = _run(_keys(objects).create(name, scope, now, until))
        typer.echo(plain)
        ends = f"expires {_day(until)}" if until else "does not expire"
        typer.echo(f"{name}: {', '.join(scope)}; {ends}. It is not shown again.", err=True)


def _list(key: typer.Typer) -> None:
    @key.command("list")
    def list_(
        as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False, objects: ObjectsUrl = ""
    ) -> None:
        """List the keys, without what would let anybody in."""
        from shoal.cli import _card

        found, now = _run(_keys(objects).all()), time.time()
        if as_json:
            import msgspec

            shown = [_shown(key, now) for key in found.values() if key is not None]
            typer.echo(msgspec.json.format(msgspec.json.encode(shown)).decode())
        elif found:
            rows = [_row(name, key, now) for name, key in found.items()]
            _card.print_table([["ID", "NAME", "SCOPES", "CREATED", "STATE"], *rows])
        else:
            typer.echo("there is no key; `shoal key create` makes one", err=True)


def _revoke(key: typer.Typer) -> None:
    @key.command()
    def revoke(
        name: WithId,
        forget: Annotated[
            bool,
            typer.Option(
                "--forget", help="Delete its record too: without any, a server begun on loopback asks for no key."
            ),
        ] = False,
        objects: ObjectsUrl = "",
    ) -> None:
        """Let a key in no more. Running servers know within seconds."""
        keys, now = _keys(objects), time.time()
        gone = _run(keys.forget(name, now) if forget else keys.revoke(name, now))
        typer.echo(f"{'forgot' if forget else 'revoked'} {gone.name} ({gone.id})")
        if forget and not _run(keys.all()):
            typer.echo("no key is left; a server that runs asks for one until it is started anew", err=True)


def moment(text: str, now: float) -> float:
    """Unix seconds of `30d` from now, or of the first of a day in UTC. Raises InvalidInput."""
    number, unit = text[:-1], text[-1:]
    if unit in _SECONDS and number.isascii() and number.isdigit() and len(number) < 6:
        return now + int(number) * _SECONDS[unit]
    from datetime import UTC, date, datetime
    from datetime import time as clock

    try:
        return datetime.combine(date.fromisoformat(text), clock(), UTC).timestamp()
    except ValueError:
        raise InvalidInput(f"--expires takes 30d, 12h, 90m, 4w or a day as 2027-01-31, not {text!r}") from None


def _keys(objects: str) -> "Keys":
    from shoal.catalog.keys import Keys
    from shoal.cli._objects import open_objects

    return Keys(open_objects(objects))


def _run(asked: "Coroutine[Any, Any, T]") -> T:
    import asyncio

    return asyncio.run(asked)


def _shown(key: "Key", now: float) -> dict[str, Any]:
    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(key)
    del fields["digest"]
    return fields | {"state": _state(key, now)}


def _row(name: str, key: "Key | None", now: float) -> list[str]:
    if key is None:
        return [name, "", "", "", "cannot be read"]
    return [key.id, key.name, ", ".join(key.scopes), _day(key.created), _state(key, now)]


def _state(key: "Key", now: float) -> str:
    if key.revoked is not None:
        return f"revoked {_day(key.revoked)}"
    if key.expires is None:
        return "good"
    return f"{'good until' if key.is_good(now) else 'expired'} {_day(key.expires)}"


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds))
