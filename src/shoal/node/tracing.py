"""The spans of the jobs in a node's hands: each job's wait in the queue, its opening, its wait here, the
micro-batches it was in, its encoding. Made only where traces were asked for.

A runtime knows nothing of traces: it says when each micro-batch began and what it took, and its node tells.
"""

from collections.abc import Iterable

import msgspec

from shoal.node.replica import Replica
from shoal.node.tickets import Ticket
from shoal.observe import traces
from shoal.protocol.envelope import Chunk
from shoal.protocol.frames import Measured


class _Job(msgspec.Struct):
    span: traces.Span
    is_sent: bool = False


class Tracing:
    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}

    def took(self, ticket: Ticket, began: float, now: float) -> None:
        """It was pulled, and opened from `began` to `now`."""
        envelope = ticket.envelope
        traces.record("queue", envelope.traceparent, envelope.received, began, {"shoal.line": envelope.line})
        facts: traces.Facts = {
            "shoal.request": ticket.id,
            "shoal.model": ticket.model.name,
            "shoal.items": len(ticket.items),
        }
        span = traces.begin("node", envelope.traceparent, facts, began)
        traces.record("decode", span.traceparent, began, now, {"shoal.bytes": envelope.size_bytes})
        self._jobs[ticket.id] = _Job(span)

    def sent(self, tickets: Iterable[Ticket], now: float) -> None:
        """Some of their items are in a window: those that are for the first time have waited."""
        for ticket in tickets:
            job = self._jobs.get(ticket.id)
            if job is not None and not job.is_sent:
                job.is_sent = True
                traces.record("wait for a window", job.span.traceparent, ticket.arrived, now, {})

    def ran(self, tickets: Iterable[Ticket], replica: Replica, measured: Measured) -> None:
        """One micro-batch: it stands in the trace of each job that had items in it."""
        facts: traces.Facts = {
            "shoal.device": replica.device, "shoal.runtime": replica.profile.runtime,
            "shoal.batch.items": measured.items, "shoal.batch.tokens": measured.tokens,
            "shoal.tokenize_ms": measured.tokenize_seconds * 1e3,
        }  # fmt: skip
        for ticket in {ticket.id: ticket for ticket in tickets}.values():
            job = self._jobs.get(ticket.id)
            if job is not None:
                ended = measured.began + measured.seconds
                traces.record("micro-batch", job.span.traceparent, measured.began, ended, facts)

    def closed(self, ticket: Ticket, chunk: Chunk | None, began: float, now: float) -> None:
        """It is answered, from `began` on put into bytes; None: given back, or nobody waits."""
        job = self._jobs.pop(ticket.id, None)
        if job is None:
            return
        if chunk is None:
            job.span.end({"shoal.outcome": "let go"}, now)
            return
        traces.record("encode", job.span.traceparent, began, now, {"shoal.bytes": len(chunk.data)})
        failure = str(chunk.status) if chunk.status >= 500 else ""
        job.span.end({"http.response.status_code": chunk.status}, now, failure=failure)
