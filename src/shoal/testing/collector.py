"""A collector of traces, for tests: takes OTLP over HTTP on a free port and keeps every span."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec


class Seen(msgspec.Struct, frozen=True):
    """One span; ids in hex, "" as the parent of a root. `began` and `ended` in unix nanoseconds."""

    trace: str
    id: str
    parent: str
    name: str
    service: str
    began: int
    ended: int
    facts: dict[str, Any]


class Collector:
    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[str] = []
        self.spans: list[Seen] = []
        self.changed = threading.Condition()

    def wait_for(self, count: int, trace: str, within_s: float = 60.0) -> list[Seen]:
        """At least so many spans of one trace. Raises TimeoutError with what came instead."""

        def found() -> list[Seen]:
            return [span for span in self.spans if span.trace == trace]

        with self.changed:
            if not self.changed.wait_for(lambda: len(found()) >= count, within_s):
                raise TimeoutError(f"{len(found())} of {count} spans: {[span.name for span in self.spans]}")
            return found()

    def take(self, path: str, body: bytes) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        taken = ExportTraceServiceRequest.FromString(body)
        with self.changed:
            self.requests.append(path)
            for resource in taken.resource_spans:
                service = _facts(resource.resource.attributes)["service.name"]
                self.spans += [_seen(span, service) for scope in resource.scope_spans for span in scope.spans]
            self.changed.notify_all()


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.path, self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()


def _seen(span: Any, service: str) -> Seen:
    return Seen(
        span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.name, service,
        span.start_time_unix_nano, span.end_time_unix_nano, _facts(span.attributes),
    )  # fmt: skip


def _facts(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
