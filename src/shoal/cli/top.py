"""`shoal top`: a server or a cluster, live in the terminal."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from shoal.cli._asking import DEFAULT_URL, Key
from shoal.protocol.errors import InvalidInput

if TYPE_CHECKING:
    import httpx

    from shoal.protocol.status import Overview


def command(app: typer.Typer) -> None:
    @app.command()
    def top(
        url: Annotated[
            str, typer.Argument(envvar="SHOAL_URL", help="Where the server or gateway is.")
        ] = DEFAULT_URL,
        api_key: Key = None,
        every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
        once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
    ) -> None:
        """Show nodes, models and lines, the most pressing first. q or Ctrl-C ends it."""
        import httpx
        from rich.console import Console

        from shoal.client.transport import direct_hosts, settings

        console = Console()
        with httpx.Client(**settings(url, api_key, "interactive"), mounts=direct_hosts(url), timeout=10) as http:
            if once or not console.is_terminal:
                from shoal.console.top import frame

                console.print(frame(_look(http, url), url, console.width, 1000))
            else:
                _watch(http, url, console, every)


def _look(http: "httpx.Client", url: str) -> "Overview":
    """What `/status` says. Raises OSError for no answer, InvalidInput for one that is not what was asked for."""
    import httpx

    from shoal.protocol.status import Overview

    try:
        answer = http.get("/status")
    except httpx.HTTPError as error:
        raise OSError(f"no answer from {url}: {str(error) or type(error).__name__}") from error
    if answer.status_code == 401:
        raise InvalidInput(f"{url} wants a key: --api-key, or $SHOAL_API_KEY")
    try:
        return msgspec.json.decode(answer.content, type=Overview)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        status = answer.status_code
        raise InvalidInput(f"{url} answers {status}, but not as a Shoal server of this version does") from error


def _watch(http: "httpx.Client", url: str, console: Any, every: float) -> None:
    """Until q or Ctrl-C. What was seen last stays while the server does not answer."""
    from rich.live import Live

    from shoal.cli._keys import Keys
    from shoal.console.top import frame

    told = _look(http, url)
    trouble, key = "", ""
    with Keys(sys.stdin) as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while key != "q":
            live.update(frame(told, url, console.width, console.height, trouble), refresh=True)
            try:
                key = keys.next(within_s=every)
                told, trouble = _look(http, url), ""
            except OSError as error:
                trouble = f"{error}. This is what was last seen; asking again."
            except KeyboardInterrupt:
                return
