"""A small closed-loop HTTP load: N connections, each sending its next request when the last is answered.

Raw HTTP/1.1 on asyncio, because a full client would take the cores that are being measured. It knows one
endpoint and checks only that every answer is a 200 and whole.
"""

import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import uvloop

WORDS = "the cat sat on a mat while rain fell over quiet hills and people walked home with bread"


@dataclass
class Result:
    """Seconds of each answered request, and how long the run took."""

    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.seconds

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def short_texts(count: int, seed: int = 1) -> list[str]:
    """English of 8 to 16 tokens, markers included."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS.split(), k=rng.randint(6, 14))) for _ in range(count)]


def request_bytes(path: str, body: object, port: int) -> bytes:
    payload = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
    return head.encode() + f"content-length: {len(payload)}\r\n\r\n".encode() + payload


class _Connection(asyncio.Protocol):
    def __init__(self, next_request: Callable[[], bytes], result: Result, until: float) -> None:
        self._next = next_request
        self._result = result
        self._until = until
        self._buffer = bytearray()
        self._began = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        if time.perf_counter() >= self._until:
            self._transport.close()
            return
        self._began = time.perf_counter()
        self._transport.write(self._next())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        if len(self._buffer) < end + 4 + length:
            return
        if not head.startswith(b"http/1.1 200"):
            self.done.set_exception(RuntimeError(bytes(self._buffer[:400]).decode("latin-1")))
            self._transport.close()
            return
        del self._buffer[: end + 4 + length]
        self._result.latencies.append(time.perf_counter() - self._began)
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


def run(port: int, requests: list[bytes], connections: int, seconds: float, warm_up_s: float = 1.0) -> Result:
    """Load 127.0.0.1:`port` with `requests` in turn. Raises RuntimeError at the first answer that is no 200."""

    async def once(result: Result, seconds: float) -> None:
        turn = iter(range(10**9))
        began = time.perf_counter()
        loop = asyncio.get_running_loop()
        made = [
            await loop.create_connection(
                lambda: _Connection(lambda: requests[next(turn) % len(requests)], result, began + seconds),
                "127.0.0.1",
                port,
            )
            for _ in range(connections)
        ]
        await asyncio.gather(*(protocol.done for _, protocol in made))
        result.seconds = time.perf_counter() - began

    async def both() -> Result:
        await once(Result(), warm_up_s)
        result = Result()
        await once(result, seconds)
        return result

    return uvloop.run(both())
