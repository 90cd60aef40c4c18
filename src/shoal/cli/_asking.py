"""What the verbs that ask a running server share: where it is, and where the texts come from."""

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.protocol.errors import InvalidInput, ShoalError

if TYPE_CHECKING:
    from shoal.client import Client
    from shoal.client.waiting import OnWait

Url = Annotated[str, typer.Option(envvar="SHOAL_URL", help="Where the server is.")]
Key = Annotated[str | None, typer.Option(envvar="SHOAL_API_KEY", help="The server's key, if it wants one.")]

DEFAULT_URL = "http://127.0.0.1:8080"


def connect(url: str, key: str | None, *, is_bulk: bool) -> "Client":
    """A client that says at once when there is no server. Bulk work lets interactive requests go first."""
    from shoal.client import Client

    return Client(
        with_scheme(url),
        key,
        connect_retry_s=0.0,
        priority="batch" if is_bulk else "interactive",
        on_wait=say_once(),
    )


def say_once() -> "OnWait":
    """Says on stderr what is waited for and how long, once for each reason."""
    said: set[str] = set()

    def say(error: ShoalError, most_s: float) -> None:
        if error.code not in said:
            said.add(error.code)
            typer.echo(f"{error.message}; trying again for up to {most_s:.0f} s (Ctrl-C ends it)", err=True)

    return say


def with_scheme(url: str) -> str:
    """As one types it: `host:8080` is `http://host:8080`."""
    return url if "://" in url else f"http://{url}"


def gather(texts: Sequence[str] | None, file: str | None, what: str) -> list[str]:
    """The arguments, then each line of `file` ("-" is stdin). Raises InvalidInput where there is nothing."""
    found = [*(texts or ()), *(_lines(file) if file is not None else ())]
    if not found:
        raise InvalidInput(f"no {what}: give some as arguments, or one a line with --file (- for stdin)")
    return found


def complain(index: int, error: ShoalError) -> None:
    """One input that failed, on stderr; counted from 1, as lines are."""
    typer.echo(f"number {index + 1}: {error.code}: {error.message}", err=True)


def shortened(text: str, width: int) -> str:
    """`text` on one line of at most `width` characters."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


def _lines(file: str) -> list[str]:
    # utf-8-sig: a mark at the beginning, as some editors leave it, is no part of the first text.
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as e:
        raise InvalidInput(f"{file} cannot be read: {e.strerror}") from e
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise InvalidInput(f"{file} is not UTF-8 text: {e.reason} at byte {e.start}") from e
    # Lines end as in any text file; str.splitlines would also cut at characters that are part of a text.
    return [line.rstrip("\n") for line in io.StringIO(text, newline=None)]
