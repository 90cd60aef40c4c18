"""Spans of a request's road, sent to a collector by OTLP where that was asked for; W3C trace context in and out.

Where it was not, nothing of OpenTelemetry is ever imported and `is_on()` is False; callers look there first.
"""

import os
import sys
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

Facts = Mapping[str, str | int | float | bool]
BY_ENVIRONMENT = "env"
"""Instead of a URL: what the OTEL_EXPORTER_OTLP_* variables say. Alone they switch nothing on."""
SEND_WITHIN_S = 5.0
CLOSE_WITHIN_S = 3.0


class Span:
    """One that has begun. `traceparent` is its context, for whatever is done on its behalf."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: Any) -> None:
        self._span = span
        self.traceparent = _header(span.get_span_context())

    def end(self, facts: Facts, at: float | None = None, *, failure: str = "") -> None:
        """`at` in unix seconds, else now."""
        self._span.set_attributes(facts)
        if failure:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR, failure))
        self._span.end(_nanoseconds(at))


class _Recorder:
    def __init__(self, url: str, service: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        named = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", service)})
        self._provider = TracerProvider(resource=named, shutdown_on_exit=False)
        # By the environment the package finds address, headers and timeout itself.
        exporter = OTLPSpanExporter(url, timeout=SEND_WITHIN_S) if url else OTLPSpanExporter()
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("shoal")
        self._extract = TraceContextTextMapPropagator().extract
        self._kinds = {True: SpanKind.SERVER, False: SpanKind.INTERNAL}

    def begin(self, name: str, parent: str, facts: Facts, at: float | None, *, is_server: bool) -> Span:
        # An empty context of its own, so that nothing of the process is taken for the parent.
        context = self._extract({"traceparent": parent}, context=_empty())
        kind = self._kinds[is_server]
        return Span(self._tracer.start_span(name, context, kind, facts, start_time=_nanoseconds(at)))

    def close(self) -> None:
        """What was not sent yet is, unless the collector takes too long."""
        # Its own shutdown waits for half a minute where nobody listens.
        thread = threading.Thread(target=self._provider.shutdown, daemon=True)
        thread.start()
        thread.join(CLOSE_WITHIN_S)


_recorder: _Recorder | None = None


def configure(endpoint: str, service: str) -> None:
    """From now on record. `endpoint` is a collector's URL (a path is kept, else it is /v1/traces) or "env".

    Raises ImportError where the packages are missing, ValueError for what is no URL.
    """
    global _recorder
    url = "" if endpoint == BY_ENVIRONMENT else _traces_url(endpoint)
    _recorder = _Recorder(url, service)


def close() -> None:
    global _recorder
    recorder, _recorder = _recorder, None
    if recorder is not None:
        recorder.close()


def is_on() -> bool:
    return _recorder is not None


def begin(name: str, parent: str, facts: Facts, at: float | None = None, *, is_server: bool = False) -> Span:
    """Only where `is_on()`. `parent` is a traceparent; "" or nonsense begins a trace. `at` in unix seconds."""
    assert _recorder is not None, "nobody asked for traces"
    return _recorder.begin(name, parent, facts, at, is_server=is_server)


def record(name: str, parent: str, began: float, ended: float, facts: Facts) -> None:
    """A span that is over already. One that ended before it began (clocks of two machines) took no time."""
    begin(name, parent, facts, began).end({}, max(began, ended))


def current() -> str:
    """The traceparent of what this process is doing now, by its own OpenTelemetry; "" where it uses none."""
    module = sys.modules.get("opentelemetry.trace")
    if module is None:
        return ""
    context = module.get_current_span().get_span_context()
    return _header(context) if context.is_valid else ""


def _header(context: Any) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _traces_url(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{endpoint!r} is no http:// or https:// URL of a collector")
    return endpoint if parts.path.strip("/") else f"{endpoint.rstrip('/')}/v1/traces"


def _nanoseconds(at: float | None) -> int | None:
    return None if at is None else int(at * 1e9)


def _empty() -> Any:
    from opentelemetry.context import Context

    return Context()
