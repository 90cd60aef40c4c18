"""One request on its connection, as the application sees it: uvicorn's, but that an answer in one piece is written
as one, without the steps that only streams need.
"""

from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from shoal.gateway.asgi import Receive, Scope, Send

Message = Any
_BODILESS = (204, 304)


class Exchange:
    """Stands between uvicorn and `app`. A head is kept back until its body begins."""

    __slots__ = ("_app", "_cycle", "_head")

    def __init__(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._cycle, self._app = cycle, app
        self._head: Message = None

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Any:
        return self._app(scope, receive, self.send)

    async def send(self, message: Message) -> None:
        head = self._head
        if message["type"] == "http.response.start" and head is None:
            self._head = message
            return
        if head is not None:
            self._head = None
            if not message.get("more_body", False) and self._is_written(head, message.get("body", b"")):
                return
            await self._cycle.send(head)
        await self._cycle.send(message)

    def _is_written(self, head: Message, body: bytes) -> bool:
        """False where it has to go uvicorn's way: 1. nobody reads, or not now, 2. the answer has no body or is the
        last of its connection, 3. the head is not as ours are, its length last."""
        cycle, status, pairs = self._cycle, head["status"], head["headers"]
        if cycle.disconnected or cycle.flow.write_paused:  # 1
            return False
        if not cycle.keep_alive or status in _BODILESS or cycle.scope["method"] == "HEAD":  # 2
            return False
        lines = b"".join([b"%b: %b\r\n" % pair for pair in pairs])
        if not lines.endswith(b"content-length: %d\r\n" % len(body)) or lines.count(b"\n") != len(pairs):  # 3
            return False
        if b"connection: " in lines:  # 2
            return False
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.transport.writelines((b"%b%b\r\n" % (STATUS_LINE[status], lines), body))
        cycle.message_event.set()
        cycle.on_response()
        return True
