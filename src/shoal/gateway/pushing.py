"""The life of a request about pushed models: its key and scope before a byte of its body, the limits that every
other request has, one answer. What is done stands in `push_routes`.
"""

import asyncio
import logging
import time
from collections.abc import Iterator

from shoal.catalog.registry import CHUNK_BYTES
from shoal.dialects import Reply
from shoal.dialects.refusals import for_anyone
from shoal.gateway import admission, push_routes
from shoal.gateway.access import Access, push
from shoal.gateway.asgi import Body, BodyBudget, Receive, Scope, Send, send_refusal, send_reply
from shoal.gateway.publishing import Publisher
from shoal.gateway.push_bodies import question
from shoal.gateway.push_routes import Asked, Found, PushRoutes
from shoal.gateway.settings import GatewaySettings
from shoal.gateway.waiting import Leaving, Watch, no_answer, too_slow
from shoal.observe import log as logs
from shoal.observe import metrics
from shoal.protocol.errors import (
    Cancelled,
    InternalError,
    NotFound,
    PayloadTooLarge,
    ShoalError,
)

log = logging.getLogger("shoal.gateway")


class Pushing:
    """Without a `publisher` there is nowhere to keep anything, and every route says so."""

    def __init__(
        self,
        publisher: Publisher | None,
        settings: GatewaySettings,
        access: Access,
        budget: BodyBudget,
        ids: Iterator[str],
    ) -> None:
        self._settings, self._access, self._budget, self._ids = settings, access, budget, ids
        self._loop = asyncio.get_running_loop()
        self._routes = PushRoutes(publisher, min(CHUNK_BYTES, settings.max_body_bytes)) if publisher else None

    def find(self, method: str, path: str) -> Found | None:
        """None for a path of others. Raises MethodNotAllowed."""
        return push_routes.find(method, path)

    async def serve(
        self,
        found: Found,
        scope: Scope,
        headers: admission.Headers,
        leaving: Leaving,
        receive: Receive,
        send: Send,
    ) -> int:
        """The status that was sent."""
        body, request_id = Body(receive, self._settings, self._budget), next(self._ids)
        try:
            with Watch(leaving, self._loop) as watch:
                reply = await self._answer(found, scope, headers, body, watch)
        except Cancelled:
            return Cancelled.status
        except ShoalError as error:
            metrics.refused(error.code)
            reply = for_anyone(error)
        except Exception:
            log.exception("a request failed", extra=logs.fields(request=request_id, route=found.route.name))
            reply = for_anyone(InternalError("something broke here; the log has the details"))
        finally:
            body.release()
        reply = Reply(reply.status, (*reply.headers, ("x-request-id", request_id)), reply.body)
        if reply.status < 400:
            await send_reply(send, reply, head_only=scope["method"] == "HEAD")
        else:
            await send_refusal(send, reply, body)
        return reply.status

    async def _answer(
        self, found: Found, scope: Scope, headers: admission.Headers, body: Body, watch: Watch
    ) -> Reply:
        """1. Key and scope. 2. A place to keep things. 3. The body. 4. The answer, before the deadline."""
        caller = self._access.check(headers, found.needed)  # 1
        if self._routes is None:  # 2
            raise NotFound(
                "nothing can be pushed here: this gateway was started without an object store; --objects names one"
            )
        received = time.time()
        timeout_s = admission.timeout_of(headers, self._settings)
        if found.route.is_long and b"x-shoal-timeout-ms" not in headers:
            timeout_s = self._settings.max_timeout_s
        watch.until(self._settings.body_timeout_s, lambda: too_slow(self._settings))
        _check_declared(headers, found.route.most_bytes)
        content = await body.read(headers)  # 3
        _check_size(len(content), found.route.most_bytes)
        watch.until(received + timeout_s - time.time(), no_answer)
        asked = Asked(
            words=found.words,
            query=question(scope["query_string"]),
            body=content,
            content_type=headers.get(b"content-type", b"").decode("latin-1"),
            caller=caller,
            check=lambda name: self._check(headers, name),
        )
        return await found.route.run(self._routes, asked)  # 4

    def _check(self, headers: admission.Headers, name: str) -> None:
        self._access.check(headers, push(name))


def _check_declared(headers: admission.Headers, most_bytes: int) -> None:
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and len(declared) < 19:
        _check_size(int(declared), most_bytes)


def _check_size(size: int, most_bytes: int) -> None:
    if most_bytes and size > most_bytes:
        raise PayloadTooLarge(
            f"the body has {size} bytes, over the limit of {most_bytes} bytes of this route; send a file in parts",
            limit=most_bytes,
            seen=size,
        )
