"""`shoal alias`: a word for a version of a pushed model, that may mean another version tomorrow."""

from typing import Annotated

import typer

from shoal.cli._asking import DEFAULT_URL, Key, Url


def command(app: typer.Typer) -> None:
    @app.command()
    def alias(
        name: Annotated[str, typer.Argument(metavar="NAME@ALIAS", help="Like team/contracts@prod.")],
        version: Annotated[int, typer.Argument(min=0, help="Its number; 0: what the name alone means now.")] = 0,
        url: Url = DEFAULT_URL,
        api_key: Key = None,
    ) -> None:
        """Let NAME@ALIAS mean a version of NAME; `shoal rm NAME@ALIAS` ends it."""
        from shoal.cli._pushed import connect, say, split
        from shoal.protocol.errors import InvalidInput

        model, word = split(name)
        if not word:
            raise InvalidInput(f"{name} says no alias; write one behind it, as {name}@prod")
        with connect(url, api_key) as client:
            say(client.alias(model, word, version))
