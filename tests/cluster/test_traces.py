"""Traces over real processes, taken by a collector of ours: one trace from the client to the runtime."""

import json
import subprocess
import sys

import httpx

from names import VIRTUAL
from shoal.testing.collector import collecting
from shoal.testing.server import serving

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
STAGES = {"POST /v1/embeddings", "queue", "node", "decode", "wait for a window", "micro-batch", "encode"}
CALLER = """
import sys, shoal
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
with trace.get_tracer("caller").start_as_current_span("batch job") as span, shoal.Client(sys.argv[1]) as client:
    client.encode(sys.argv[2], ["a", "b", "c"])
    print(f"{span.get_span_context().trace_id:032x}")
"""


def ask(url: str, **headers: str) -> httpx.Response:
    body = {"model": VIRTUAL, "input": "a harbour at dawn"}
    return httpx.post(f"{url}/v1/embeddings", json=body, headers=headers, timeout=60).raise_for_status()


def test_a_request_is_one_trace_from_its_client_to_the_runtime(virtual_home):
    with collecting() as collector, serving(virtual_home, "--otlp", collector.url) as server:
        answer = ask(server.url, traceparent=f"00-{TRACE}-{SPAN}-01")
        spans = {span.name: span for span in collector.wait_for(len(STAGES), TRACE)}
        assert set(spans) == STAGES
        root, node = spans["POST /v1/embeddings"], spans["node"]
        assert (root.parent, node.parent, spans["queue"].parent) == (SPAN, root.id, root.id)
        of_node = STAGES - {root.name, "queue", "node"}
        assert {spans[name].parent for name in of_node} == {node.id}
        assert answer.headers["traceresponse"] == f"00-{TRACE}-{root.id}-01"
        assert root.facts["shoal.request"] == node.facts["shoal.request"] == answer.headers["x-request-id"]
        assert (spans["micro-batch"].facts["shoal.batch.items"], node.facts["shoal.items"]) == (1, 1)
        assert spans["micro-batch"].facts["shoal.batch.tokens"] > 0
        for span in spans.values():
            assert root.began <= span.began <= span.ended
        assert spans["queue"].ended <= spans["micro-batch"].began <= spans["micro-batch"].ended <= node.ended
        assert set(collector.requests) == {"/v1/traces"}


def test_our_client_goes_on_with_its_callers_trace(virtual_home):
    with collecting() as collector, serving(virtual_home, "--otlp", collector.url) as server:
        words = [sys.executable, "-c", CALLER, server.url, VIRTUAL]
        trace = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        assert {"node", "micro-batch"} <= {span.name for span in collector.wait_for(7, trace)}


def test_what_a_client_does_not_sample_is_not_recorded_and_without_a_trace_one_begins(virtual_home):
    with collecting() as collector, serving(virtual_home, "--otlp", collector.url) as server:
        ask(server.url, traceparent=f"00-{TRACE}-{SPAN}-00")
        ours = ask(server.url, traceparent="nonsense").headers["traceresponse"].split("-")[1]
        assert len(collector.wait_for(len(STAGES), ours)) == len(STAGES)
        assert {span.trace for span in collector.spans} == {ours}


def test_a_collector_that_is_not_there_costs_no_request_and_no_long_goodbye(virtual_home):
    with serving(virtual_home, "--otlp", "http://127.0.0.1:9") as server:
        assert ask(server.url).status_code == 200
        assert server.stop(within_s=30) == 0


def test_nothing_is_sent_unless_asked_whatever_the_environment_says(virtual_home):
    with collecting() as collector:
        with serving(virtual_home, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url) as server:
            assert "traceresponse" not in ask(server.url, traceparent=f"00-{TRACE}-{SPAN}-01").headers
        assert collector.requests == []
        with serving(virtual_home, "--otlp", "env", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url) as server:
            ask(server.url, traceparent=f"00-{TRACE}-{SPAN}-01")
        assert len(collector.wait_for(len(STAGES), TRACE)) == len(STAGES)


def test_without_traces_no_telemetry_package_is_ever_imported():
    rooms = "import sys, shoal.cli._road, shoal.cli._cluster, shoal.runtimes.host, shoal"
    told = f"{rooms}; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    ran = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_every_line_about_a_request_carries_its_id_and_there_is_a_line_for_each_where_asked(virtual_home):
    with serving(virtual_home, "--access-log", "--log-format", "json") as server:
        answer = ask(server.url)
        refused = httpx.post(f"{server.url}/v1/encode/not/here?x=%0a", json={"items": ["a"]}, timeout=60)
        httpx.get(f"{server.url}/livez", timeout=60)
        server.stop()
        told = [json.loads(line) for line in server.log.read_text().splitlines()]
    lines = {line["path"]: line for line in told if line["event"] == "answered"}
    ours, other = lines["/v1/embeddings"], lines["/v1/encode/not/here"]
    assert (ours["request"], ours["status"]) == (answer.headers["x-request-id"], 200)
    assert (ours["bytes"], ours["method"]) == (len(answer.content), "POST")
    assert (other["request"], other["status"]) == (refused.headers["x-request-id"], 404)
    assert lines["/livez"]["request"] == "-"
