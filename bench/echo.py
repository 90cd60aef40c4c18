"""The least that an HTTP server does: `python bench/echo.py PORT` sends each body back, bare ASGI on the uvicorn,
httptools and uvloop that carry the gateway too. What the road costs is told in multiples of it.
"""

import sys
from typing import Any

import uvicorn


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    uvicorn.run(
        echo, host="127.0.0.1", port=int(sys.argv[1]), http="httptools", loop="uvloop", ws="none", lifespan="off",
        interface="asgi3", access_log=False, log_config=None, server_header=False, date_header=False, backlog=4096,
    )  # fmt: skip
