"""The ASGI application: one function a request goes through, from its head to its answer's last byte."""

import asyncio
import itertools
import logging
import secrets
import time
from typing import Protocol

from shoal.catalog import Model
from shoal.dialects import Reply
from shoal.dialects.refusals import for_anyone
from shoal.gateway import accounts, admission, routing, watching
from shoal.gateway.access import ANY_KEY, Access, Caller
from shoal.gateway.asgi import LEAVING, Body, BodyBudget, Receive, Scope, Send, head, send_refusal, send_reply
from shoal.gateway.early import Early
from shoal.gateway.pages import Pages, States
from shoal.gateway.publishing import Publisher
from shoal.gateway.pushing import Pushing
from shoal.gateway.settings import GatewaySettings
from shoal.gateway.waiting import Leaving, Watch, no_answer, too_slow
from shoal.gateway.watching import Watchers
from shoal.observe import log as logs
from shoal.observe import metrics, traces
from shoal.protocol.envelope import Envelope, Job
from shoal.protocol.errors import (
    Cancelled,
    DeadlineExceeded,
    InternalError,
    InvalidInput,
    MethodNotAllowed,
    ModelLoading,
    NoNode,
    NotFound,
    QueueFull,
    ResourceExhausted,
    ShoalError,
    over_limit,
)
from shoal.queue import Inbox, Queue

log = logging.getLogger("shoal.gateway")


class Models(Protocol):
    """What the gateway asks of the catalog. `resolve` raises ModelNotFound with a way out."""

    def resolve(self, name: str) -> Model: ...
    def default_model(self, task: str, kind: str = "") -> Model: ...


class Gateway:
    def __init__(
        self,
        queue: Queue,
        models: Models,
        states: States,
        pages: Pages,
        settings: GatewaySettings,
        access: Access | None = None,
        publisher: Publisher | None = None,
    ) -> None:
        """`access` knows the stored keys too; without it those of `settings` alone let in."""
        self._queue = queue
        self._models = models
        self._states = states
        self._pages = pages
        self._settings = settings
        self._access = access or Access(settings.keys)
        self._in_flight = 0
        metrics.IN_FLIGHT.set_function(lambda: self._in_flight)
        self._budget = BodyBudget(settings.max_in_flight_bytes)
        self._loop = asyncio.get_running_loop()  # to ask for it each time is a system call on Python 3.11
        self._ids = map(f"{secrets.token_hex(6)}{{:x}}".format, itertools.count(1))
        self.early = Early(queue, self.resolve, settings, self._access, self._ids, pages.counts)
        self._pushing = Pushing(publisher, settings, self._access, self._budget, self._ids)
        self._watchers = Watchers(pages.cluster_status, settings.write_timeout_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._watch(scope, receive, send)
            return
        began = time.perf_counter()
        if self._settings.access_log:
            route, status = await accounts.logged(self._serve, scope, receive, send)
        else:
            route, status = await self._serve(scope, receive, send)
        metrics.answered(route, status, time.perf_counter() - began)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> tuple[str, int]:
        """The route's name and the status that was sent, for the count."""
        headers = admission.headers_of(scope["headers"])
        try:
            page = self._pages.find(scope["method"], scope["path"])
            if page is not None:
                if page.needs_key:
                    self._access.check(headers, ANY_KEY)
                known = page.for_known is not None and self._access.is_known(headers)
                answer = page.for_known if known else page.answer
                reply = await answer(scope["path"], scope["query_string"])
                await send_reply(send, reply, head_only=scope["method"] == "HEAD")
                return page.name, reply.status
            change = self._pushing.find(scope["method"], scope["path"])
            if change is not None:
                leaving = _leaving(scope)
                return change.route.name, await self._pushing.serve(change, scope, headers, leaving, receive, send)
            target = routing.find(scope["method"], scope["path"])
        except ShoalError as error:
            metrics.refused(error.code)
            reply = _with_allow(for_anyone(error), error)
            await send_reply(send, reply)
            return "none", reply.status
        leaving = _leaving(scope)
        if traces.is_on():
            status = await accounts.traced(self._compute, target, headers, leaving, receive, send)
        else:
            status = await self._compute(target, headers, leaving, receive, send)
        self._pages.counts.over(status)
        return target.route.name, status

    async def _watch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """1. A path that is watched. 2. Key. 3. Room for one more."""
        try:
            if scope["path"] != "/ws/cluster-status":  # 1
                raise NotFound(f"nothing to watch at {scope['path'][:200]!r}")
            self._access.check(admission.headers_of(scope["headers"]), ANY_KEY)  # 2
            self._watchers.check_room()  # 3
        except ShoalError as error:
            metrics.refused(error.code)
            await watching.refuse(send, for_anyone(error))
            return
        await self._watchers.serve(receive, send)

    async def _compute(
        self, target: routing.Target, headers: admission.Headers, leaving: Leaving, receive: Receive, send: Send
    ) -> int:
        self._in_flight += 1
        inbox: Inbox | None = None
        envelope: Envelope | None = None
        started = False
        request_id = next(self._ids)
        body = Body(receive, self._settings, self._budget)
        try:
            received = time.time()
            caller = self._check_room(headers)
            with Watch(leaving, self._loop) as watch:
                watch.until(self._settings.body_timeout_s, lambda: too_slow(self._settings))
                content = await body.read(headers)
                target = target.of(content)
                envelope = self._admit(target, headers, content, received, request_id, caller)
                watch.until(envelope.deadline - received, no_answer)
                inbox = await self._queue.publish(Job(envelope, content))
                more = True
                while more:
                    chunk = await inbox.next()
                    more = not chunk.last
                    if not started:
                        started, status = True, chunk.status
                        await send(head(status, chunk.headers, None if more else len(chunk.data)))
                    await send({"type": "http.response.body", "body": chunk.data, "more_body": more})
            return status
        except Cancelled:
            return Cancelled.status
        except ShoalError as error:
            refused = self._at_deadline(error, envelope) if isinstance(error, DeadlineExceeded) else error
            if isinstance(error, QueueFull):
                self.early.begin()
        except Exception:
            log.exception("a request failed", extra=logs.fields(request=request_id, route=target.route.name))
            refused = InternalError("something broke here; the log has the details")
        finally:
            if inbox is not None:
                inbox.close()
            body.release()
            self._in_flight -= 1
        if started:  # a stream that broke: the connection ends without its last chunk, which says so
            raise ConnectionError("the answer broke off")
        metrics.refused(refused.code)
        reply = target.dialect.refuse(refused, accept=headers.get(b"accept", b"").decode("latin-1"))
        del refused  # its traceback holds this frame, and with it the body
        reply = Reply(reply.status, (*reply.headers, ("x-request-id", request_id)), reply.body)
        await send_refusal(send, reply, body)
        return reply.status

    def _check_room(self, headers: admission.Headers) -> Caller:
        """Before anything of the body is read. 1. Key. 2. Room."""
        settings = self._settings
        caller = self._access.check(headers)  # 1
        if self._in_flight > settings.max_in_flight:  # 2
            raise over_limit(
                ResourceExhausted, "the number of requests in flight", seen=self._in_flight,
                limit=settings.max_in_flight, setting="--max-in-flight",
            )  # fmt: skip
        return caller

    def _admit(
        self,
        target: routing.Target,
        headers: admission.Headers,
        content: bytes,
        received: float,
        request_id: str,
        caller: Caller,
    ) -> Envelope:
        """3. The model. 4. What it can do. 5. The envelope."""
        model = self.resolve(target, content)  # 3
        if not model.facts.can(target.route.task):  # 4
            can = ", ".join(model.facts.tasks)
            raise InvalidInput(f"{model.name} cannot {target.route.task}; it can {can}", param="model")
        return admission.envelope(  # 5
            target, model, headers, len(content), self._settings, received, request_id, caller.id
        )

    def resolve(self, target: routing.Target, body: bytes) -> Model:
        """The model that a request asks for. Raises ModelNotFound."""
        name = target.model or target.dialect.peek(target.route.name, body)
        if not name:
            return self._models.default_model(target.route.task, target.route.kind)
        try:
            return self._models.resolve(name)
        except ShoalError:
            if "__" not in name:
                raise
            return self._models.resolve(name.replace("__", "/"))

    def _at_deadline(self, error: ShoalError, envelope: Envelope | None) -> ShoalError:
        """1. Its model is there and was too slow. 2. Nobody is there. 3. The model was still being loaded.

        Of the last two a client is told so: it may come back.
        """
        if envelope is None:
            return error
        status = self._states().get(envelope.line)
        if status is not None and status.state == "ready":
            is_adapter = envelope.model != envelope.line
            if not is_adapter or status.adapters.get(envelope.model) == "ready":
                return error  # 1
        if not self._pages.has_node():
            return NoNode(f"no node of this pool is there to compute {envelope.model}; ask again")  # 2
        return ModelLoading(f"{envelope.model} is still loading; ask again", model=envelope.model)  # 3


def _leaving(scope: Scope) -> Leaving:
    found: Leaving = scope.get("state", {}).get(LEAVING, set())
    return found


def _with_allow(reply: Reply, error: ShoalError) -> Reply:
    if not isinstance(error, MethodNotAllowed):
        return reply
    allow = ("allow", ", ".join(error.detail["allow"]))
    return Reply(reply.status, (*reply.headers, allow), reply.body)
