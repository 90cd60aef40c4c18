"""A real HTTP server that speaks the native wire: a bare ASGI app on uvicorn, with arithmetic for a model."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import uvicorn

from shoal.dialects.arrays import wire_array

Answer = tuple[int, dict[str, str], bytes]
FAULT = {"error": {"code": "EMPTY_INPUT", "message": "the text is empty"}}


def packed(value: Any, status: int = 200) -> Answer:
    return status, {"content-type": "application/msgpack"}, msgspec.msgpack.encode(value)


def refused(status: int, code: str, key: str = "detail", **headers: str) -> Answer:
    body = msgspec.json.encode({key: {"code": code, "message": f"said {code}"}})
    return status, {"content-type": "application/json"} | headers, body


def vector(text: str) -> np.ndarray[Any, Any]:
    return np.array([len(text), sum(map(ord, text)), 1], "<f4")


class Wire:
    """Encodes by counting letters, scores by length. Answers from `script` first, if that holds any."""

    def __init__(self) -> None:
        self.script: list[Answer] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        self.paths.append(scope["path"] + (f"?{scope['query_string'].decode()}" if scope["query_string"] else ""))
        self.headers.append({key.decode(): value.decode() for key, value in scope["headers"]})
        self.bodies.append(msgspec.msgpack.decode(body) if body else None)
        status, headers, data = self.script.pop(0) if self.script else self.answer(scope["path"], self.bodies[-1])
        pairs = [(key.replace("_", "-").encode(), value.encode()) for key, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": data})

    def answer(self, path: str, body: Any) -> Answer:
        if path.startswith("/v1/encode/"):
            return self.encode([item["text"] for item in body["items"]])
        if path.startswith("/v1/score/"):
            return self.score(body["items"])
        if path == "/v1/models":
            return 200, {}, b'{"object": "list", "data": [{"id": "a/b"}], "models": [{"name": "a/b"}]}'
        if path.startswith("/v1/models/"):
            return 200, {}, msgspec.json.encode({"name": path.removeprefix("/v1/models/")})
        return 200, {}, b"ok"

    def encode(self, texts: list[str]) -> Answer:
        if not any(texts):
            return refused(400, "EMPTY_INPUT")
        return packed(
            {"items": [{"dense": {"values": wire_array(vector(text))}} if text else FAULT for text in texts]}
        )

    def score(self, items: list[dict[str, str]]) -> Answer:
        scored = [
            {"item_id": item["id"], "score": float(len(item["text"]))}
            if item["text"]
            else {"item_id": item["id"], "score": -3.4028234663852886e38} | FAULT
            for item in items
        ]
        scored.sort(key=lambda entry: -(entry["score"] or 0.0))
        return packed({"scores": scored})


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """The URL of a running server. It listens before it runs, so that nobody has to wait for it."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", ws="none", log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
