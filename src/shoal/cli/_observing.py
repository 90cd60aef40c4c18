"""What an operator sees of a process, set up before it begins and ended after it: its log, its traces."""

import contextlib
import os
from collections.abc import Iterator

from shoal.observe import log as logs
from shoal.observe import traces
from shoal.protocol.errors import InvalidInput


@contextlib.contextmanager
def observing(log_format: str, otlp: str, service: str) -> Iterator[None]:
    """`otlp` "" records nothing. Raises InvalidInput for a collector that cannot be one."""
    os.environ["SHOAL_LOG_FORMAT"] = log_format  # the runtimes' too
    logs.configure("json" if log_format == "json" else "text")
    if otlp:
        try:
            traces.configure(otlp, service)
        except ImportError as error:
            raise InvalidInput(f"--otlp needs OpenTelemetry, `pip install 'shoal[otel]'` ({error})") from error
        except ValueError as error:
            raise InvalidInput(f"--otlp: {error}") from error
    try:
        yield
    finally:
        traces.close()
