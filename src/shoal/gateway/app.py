"""The ASGI application: one function a request goes through, from its head to its answer's last byte."""

import logging
import secrets
import time
from typing import Protocol

from shoal.catalog import Model
from shoal.dialects import Reply
from shoal.dialects.refusals import for_anyone
from shoal.gateway import admission, routing
from shoal.gateway.asgi import Body, BodyBudget, Receive, Scope, Send, head, send_refusal, send_reply
from shoal.gateway.pages import Pages, States
from shoal.gateway.settings import GatewaySettings
from shoal.gateway.waiting import answers
from shoal.observe import log as logs
from shoal.observe import metrics
from shoal.protocol.envelope import Envelope, Job
from shoal.protocol.errors import (
    Cancelled,
    DeadlineExceeded,
    InternalError,
    InvalidInput,
    MethodNotAllowed,
    ModelLoading,
    ResourceExhausted,
    ShoalError,
    over_limit,
)
from shoal.queue import Inbox, Queue

log = logging.getLogger("shoal.gateway")


class Models(Protocol):
    """What the gateway asks of the catalog. `resolve` raises ModelNotFound with a way out."""

    def resolve(self, name: str) -> Model: ...
    def default_model(self, task: str) -> Model: ...


class Gateway:
    def __init__(
        self, queue: Queue, models: Models, states: States, pages: Pages, settings: GatewaySettings
    ) -> None:
        self._queue = queue
        self._models = models
        self._states = states
        self._pages = pages
        self._settings = settings
        self._in_flight = 0
        self._budget = BodyBudget(settings.max_in_flight_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        route, status = await self._serve(scope, receive, send)
        metrics.REQUESTS.labels(route, status).inc()
        metrics.REQUEST_SECONDS.labels(route).observe(time.perf_counter() - began)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> tuple[str, int]:
        """The route's name and the status that was sent, for the count."""
        headers = admission.headers_of(scope["headers"])
        try:
            page = self._pages.find(scope["method"], scope["path"])
            if page is not None:
                if page.needs_key:
                    admission.check_key(headers, self._settings)
                reply = await page.answer(scope["path"], scope["query_string"])
                await send_reply(send, reply, head_only=scope["method"] == "HEAD")
                return page.name, reply.status
            target = routing.find(scope["method"], scope["path"])
        except ShoalError as error:
            reply = _with_allow(for_anyone(error), error)
            await send_reply(send, reply)
            return "none", reply.status
        return target.route.name, await self._compute(target, headers, receive, send)

    async def _compute(
        self, target: routing.Target, headers: admission.Headers, receive: Receive, send: Send
    ) -> int:
        self._in_flight += 1
        metrics.IN_FLIGHT.set(self._in_flight)
        inbox: Inbox | None = None
        envelope: Envelope | None = None
        started = False
        request_id = secrets.token_hex(8)
        body = Body(receive, self._settings, self._budget)
        try:
            received = time.time()
            self._check_room(headers)
            content = await body.read(headers)
            target = target.of(content)
            envelope = self._admit(target, headers, content, received, request_id)
            inbox = await self._queue.publish(Job(envelope, content))
            async for chunk in answers(inbox, envelope.deadline, receive):
                if not started:
                    started = True
                    status = chunk.status
                    length = len(chunk.data) if chunk.last else None
                    await send(head(chunk.status, chunk.headers, length))
                await send({"type": "http.response.body", "body": chunk.data, "more_body": not chunk.last})
            return status
        except Cancelled:
            return Cancelled.status
        except ShoalError as error:
            refused = self._at_deadline(error, envelope) if isinstance(error, DeadlineExceeded) else error
        except Exception:
            log.exception("a request failed", extra=logs.fields(route=target.route.name))
            refused = InternalError("something broke here; the log has the details")
        finally:
            if inbox is not None:
                inbox.close()
            body.release()
            self._in_flight -= 1
            metrics.IN_FLIGHT.set(self._in_flight)
        if started:  # a stream that broke: the connection ends without its last chunk, which says so
            raise ConnectionError("the answer broke off")
        reply = target.dialect.refuse(refused, accept=headers.get(b"accept", b"").decode("latin-1"))
        reply = Reply(reply.status, (*reply.headers, ("x-request-id", request_id)), reply.body)
        await send_refusal(send, reply, body)
        return reply.status

    def _check_room(self, headers: admission.Headers) -> None:
        """Before anything of the body is read. 1. Key. 2. Room."""
        settings = self._settings
        admission.check_key(headers, settings)  # 1
        if self._in_flight > settings.max_in_flight:  # 2
            raise over_limit(
                ResourceExhausted, "the number of requests in flight", seen=self._in_flight,
                limit=settings.max_in_flight, setting="--max-in-flight",
            )  # fmt: skip

    def _admit(
        self, target: routing.Target, headers: admission.Headers, content: bytes, received: float, request_id: str
    ) -> Envelope:
        """3. The model. 4. What it can do. 5. The envelope."""
        model = self._resolve(target, content)  # 3
        if not model.facts.can(target.route.task):  # 4
            can = ", ".join(model.facts.tasks)
            raise InvalidInput(f"{model.name} cannot {target.route.task}; it can {can}", param="model")
        return admission.envelope(  # 5
            target, model.name, headers, len(content), self._settings, received, request_id
        )

    def _resolve(self, target: routing.Target, body: bytes) -> Model:
        name = target.model or target.dialect.peek(target.route.name, body)
        if not name:
            return self._models.default_model(target.route.task)
        try:
            return self._models.resolve(name)
        except ShoalError:
            if "__" not in name:
                raise
            return self._models.resolve(name.replace("__", "/"))

    def _at_deadline(self, error: ShoalError, envelope: Envelope | None) -> ShoalError:
        """A client whose model was still being loaded is told so: it may come back for it."""
        status = self._states().get(envelope.model) if envelope else None
        if envelope is None or status is None or status.state == "ready":
            return error
        return ModelLoading(f"{envelope.model} is still loading; ask again", model=envelope.model)


def _with_allow(reply: Reply, error: ShoalError) -> Reply:
    if not isinstance(error, MethodNotAllowed):
        return reply
    allow = ("allow", ", ".join(error.detail["allow"]))
    return Reply(reply.status, (*reply.headers, allow), reply.body)
