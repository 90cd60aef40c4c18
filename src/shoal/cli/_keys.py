"""Single keys from a terminal, without Enter and without showing them."""

import contextlib
import select
import sys
import time
from types import TracebackType
from typing import Any, TextIO


class Keys:
    """Where `source` is no terminal, there are none."""

    def __init__(self, source: TextIO) -> None:
        self._source = source
        self._before: Any = None

    def __enter__(self) -> "Keys":
        if self._source.isatty() and sys.platform != "win32":
            import termios
            import tty

            self._before = termios.tcgetattr(self._source)
            tty.setcbreak(self._source)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None and sys.platform != "win32":
            import termios

            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._source, termios.TCSADRAIN, self._before)

    def next(self, within_s: float) -> str:
        """The key that is pressed, "" where none is in that time."""
        if self._before is None:
            time.sleep(within_s)
            return ""
        ready, _, _ = select.select([self._source], [], [], within_s)
        return self._source.read(1) if ready else ""
