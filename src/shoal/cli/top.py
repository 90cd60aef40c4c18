"""`shoal top`: a server or a cluster, live in the terminal."""

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from shoal.cli._asking import DEFAULT_URL, Key, with_scheme
from shoal.protocol.errors import InvalidInput

if TYPE_CHECKING:
    import httpx

    from shoal.protocol.status import Overview


def command(app: typer.Typer) -> None:
    @app.command()
    def top(
        url: Annotated[
            str, typer.Argument(metavar="URL", envvar="SHOAL_URL", help="Where the server or gateway is.")
        ] = DEFAULT_URL,
        api_key: Key = None,
        every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
        once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
    ) -> None:
        """Show nodes, models and lines, the most pressing first. q or Ctrl-C ends it."""
        import httpx
        from rich.console import Console

        from shoal.client.errors import ServerUnreachable
        from shoal.client.transport import direct_hosts, settings
        from shoal.console.top import frame

        console, url = Console(), with_scheme(url)
        with httpx.Client(**settings(url, api_key, "interactive"), mounts=direct_hosts(url), timeout=10) as http:
            try:
                told = _look(http, url)
            except ServerUnreachable as error:
                todo = "start one with `shoal serve` or `shoal up`, or say where it is: shoal top URL"
                raise ServerUnreachable(f"{error.message}; {todo}") from error
            if once or not console.is_terminal:
                console.print(frame(told, url, console.width, 1000))
            else:
                _watch(http, url, console, every, told)


def _look(http: "httpx.Client", url: str) -> "Overview":
    """What `/status` says. Raises ServerUnreachable for no answer, InvalidInput for one that is not what was asked
    for."""
    import httpx

    from shoal.client.errors import ServerUnreachable
    from shoal.client.transport import reason_of
    from shoal.protocol.status import Overview

    try:
        answer = http.get("/status")
    except httpx.HTTPError as error:
        raise ServerUnreachable(f"no server answers at {url} ({reason_of(error)})") from error
    if answer.status_code == 401:
        raise InvalidInput(f"{url} wants a key: --api-key, or $SHOAL_API_KEY")
    try:
        return msgspec.json.decode(answer.content, type=Overview)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        status = answer.status_code
        raise InvalidInput(f"{url} answers {status}, but not as a Shoal server of this version does") from error


def _watch(http: "httpx.Client", url: str, console: Any, every: float, told: "Overview") -> None:
    """Until q or Ctrl-C. What was seen last stays while the server does not answer."""
    from rich.live import Live

    from shoal.cli._keys import Keys
    from shoal.console.top import frame

    trouble, key = "", ""
    # Ctrl-C may come at any moment, also while a frame is drawn.
    with (
        contextlib.suppress(KeyboardInterrupt),
        Keys(sys.stdin) as keys,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while key != "q":
            live.update(frame(told, url, console.width, console.height, trouble), refresh=True)
            key = keys.next(within_s=every)
            try:
                told, trouble = _look(http, url), ""
            except OSError as error:
                trouble = f"{error}. This is what was last seen; asking again."
