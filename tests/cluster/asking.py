"""Steady load on a cluster: known texts asked again and again, each answer held against what it must be."""

import asyncio
import contextlib
import itertools
import time
from collections import Counter

import httpx
import numpy as np

from names import VIRTUAL

JSON = {"accept": "application/json"}
RETRYABLE = {
    "QUEUE_UNAVAILABLE", "QUEUE_FULL", "MODEL_LOADING", "PROVISIONING", "RESOURCE_EXHAUSTED", "SHUTTING_DOWN",
}  # fmt: skip
RETRYABLE |= {"GATEWAY_TIMEOUT"}
DEADLINE_S = 30.0


def client_of(url: str, **more) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=500, max_keepalive_connections=500)
    return httpx.AsyncClient(base_url=url, timeout=DEADLINE_S + 15, limits=limits, **more)


async def encode(client: httpx.AsyncClient, *texts: str, model=VIRTUAL, **headers: str) -> httpx.Response:
    body = {"items": [{"text": text} for text in texts]}
    return await client.post(f"/v1/encode/{model}", json=body, headers=JSON | headers)


def vector(response: httpx.Response) -> np.ndarray:
    assert response.status_code == 200, response.text
    return np.array(response.json()["items"][0]["dense"]["values"], "f4")


async def until(condition, within_s: float = 60.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.05)


class Asking:
    """Askers that go on until the block ends, each with one request at a time. Of several `urls` they take turns.

    `answered` counts right answers, `refused` codes of refusals, `broken` connections that broke; `gap_s` is the
    longest time without any right answer.
    """

    def __init__(self, urls, model=VIRTUAL, askers=16, texts=40, deadline_s=DEADLINE_S):
        self._urls = [urls] if isinstance(urls, str) else urls
        self._model, self._askers, self._deadline_s = model, askers, deadline_s
        self._texts = [f"sentence number {n} about topic {n % 7}" for n in range(texts)]
        self._ending = asyncio.Event()
        self._stack = contextlib.AsyncExitStack()
        self._known: dict[str, np.ndarray] = {}
        self._last = 0.0
        self.answered = 0
        self.refused: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.gap_s = 0.0

    async def __aenter__(self):
        # One client for all askers of a URL: to make one takes so long that it would count as a gap.
        self._clients = [await self._stack.enter_async_context(client_of(url)) for url in self._urls]
        for text in self._texts:
            self._known[text] = vector(await encode(self._clients[0], text, model=self._model))
        self._last = time.monotonic()
        self._tasks = [asyncio.create_task(self._ask(number)) for number in range(self._askers)]
        return self

    async def __aexit__(self, *_):
        self._ending.set()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def more(self, count: int, within_s: float = 60.0) -> None:
        """Until so many more were answered."""
        wanted = self.answered + count
        await until(lambda: self.answered >= wanted, within_s)

    def report(self, what: str) -> None:
        print(
            f"{what}: {self.answered} answered, refused {dict(self.refused)}, broken {dict(self.broken)}, "
            f"longest gap {self.gap_s:.2f} s"
        )

    async def _ask(self, number: int) -> None:
        for turn in itertools.count(number):
            if self._ending.is_set():
                return
            text = self._texts[turn * 7 % len(self._texts)]
            await self._one(self._clients[turn % len(self._clients)], text)

    async def _one(self, client: httpx.AsyncClient, text: str) -> None:
        began = time.monotonic()
        try:
            wait_ms = str(int(self._deadline_s * 1e3))
            response = await encode(client, text, model=self._model, **{"x-shoal-timeout-ms": wait_ms})
        except (httpx.TransportError, OSError) as error:
            self.broken[type(error).__name__] += 1
            await asyncio.sleep(0.05)
            return
        took = time.monotonic() - began
        if took > self._deadline_s + 2:
            self.wrong.append(f"answered after {took:.1f} s")
        if response.status_code == 200:
            now = time.monotonic()
            self.gap_s, self._last = max(self.gap_s, now - self._last), now
            if float(vector(response) @ self._known[text]) < 0.9995:
                self.wrong.append(f"another's answer to {text!r}")
            self.answered += 1
            return
        code = response.headers.get("x-sie-error-code", "") or response.text[:100]
        self.refused[code] += 1
        if code not in RETRYABLE or "retry-after" not in response.headers:
            self.wrong.append(f"{response.status_code} {response.text[:200]}")
        await asyncio.sleep(0.05)
