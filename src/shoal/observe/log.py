"""One log line an event, as key=value for people or JSON for machines. Called once, by each process's start."""

import json
import logging
import sys
import time
from typing import Any, Literal

LogFormat = Literal["text", "json"]


def configure(form: LogFormat = "text", level: str = "INFO") -> None:
    """Send our loggers to stderr. Libraries stay at WARNING, so that a request costs no line of theirs."""
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(_Formatter(form))
    root = logging.getLogger()
    root.handlers[:] = [stream]
    root.setLevel("WARNING")
    logging.getLogger("shoal").setLevel(level)


def fields(**values: Any) -> dict[str, Any]:
    """For `log.info("loaded", extra=fields(model=…))`."""
    return {"fields": values}


class _Formatter(logging.Formatter):
    def __init__(self, form: LogFormat) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        values: dict[str, Any] = getattr(record, "fields", {})
        if record.exc_info:
            values = values | {"traceback": self.formatException(record.exc_info)}
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{record.msecs:03.0f}Z"
        if self._form == "json":
            head = {"time": stamp, "level": record.levelname.lower(), "room": record.name}
            return json.dumps(head | {"event": record.getMessage()} | values, default=str)
        tail = "".join(f" {key}={_plain(value)}" for key, value in values.items() if key != "traceback")
        trace = f"\n{values['traceback']}" if "traceback" in values else ""
        return f"{stamp} {record.levelname.lower():7} {record.getMessage()}{tail}{trace}"


def _plain(value: Any) -> str:
    """On one line, whatever a stranger put into it."""
    text = str(value)
    return text if text.isprintable() else json.dumps(text)
