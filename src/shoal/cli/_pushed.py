"""What the verbs for pushed models share: names with an alias or version, and how a name's state is shown."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from shoal.client import Client

PATIENCE_S = 600.0
"""As long as a server lets anybody wait by default: a proof loads a model."""
Note = Annotated[str, typer.Option(help="Why, for the history.")]


def connect(url: str, key: str | None) -> "Client":
    from shoal.cli._asking import say_once, with_scheme
    from shoal.client import Client

    return Client(with_scheme(url), key, timeout_s=PATIENCE_S, connect_retry_s=0.0, on_wait=say_once())


def split(name: str) -> tuple[str, str]:
    """A name and what stands after its `@`, "" for nothing. Raises InvalidInput for a variant."""
    from shoal.catalog.names import parse_name

    asked = parse_name(name)
    if asked.variant:
        raise InvalidInput(f"{name}: a variant is no version; leave out :{asked.variant}")
    return asked.name, asked.version


def say(state: dict[str, Any]) -> None:
    """One line: what the name and its aliases mean now."""
    name = state["name"]
    means = [f"{name} is version {state['current']}"] if state["current"] else [f"{name} is no more"]
    means += [f"{name}@{alias} is version {version}" for alias, version in sorted(state["aliases"].items())]
    typer.echo("; ".join(means))


def moment(seconds: float) -> str:
    """To the second, in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
