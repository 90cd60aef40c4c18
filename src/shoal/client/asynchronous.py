"""The asyncio client: drives the same flows as the blocking one, on the caller's loop."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, overload

import httpx

from shoal.client import calls, pushing
from shoal.client.calls import Call
from shoal.client.encoding import EncodeOptions, encode
from shoal.client.flow import ConnectionFailed, Flow, Outcome, Received, Send, Terms
from shoal.client.folders import opened
from shoal.client.inputs import Item, Texts
from shoal.client.pushing import Asked, Progress, Pushed
from shoal.client.reference import Reference
from shoal.client.scoring import Ranked, ScoreOptions, score
from shoal.client.transport import direct_hosts, failed, settings, timeouts
from shoal.client.waiting import OnWait, tell
from shoal.protocol.envelope import Priority
from shoal.protocol.errors import ShoalError
from shoal.protocol.tensors import Array

T = TypeVar("T")


class AsyncClient:
    """Asks a Shoal server from one event loop. Close it, or use it in an `async with` block.

    Its methods take, give and raise what those of `Client` do. A cancelled call leaves nothing under way.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8080",
        api_key: str | None = None,
        timeout_s: float = 120.0,
        *,
        connect_retry_s: float = 10.0,
        concurrency: int = 4,
        priority: Priority = "interactive",
        on_wait: OnWait | None = None,
    ) -> None:
        """See `Client`."""
        self._terms = Terms(base_url=base_url, timeout_s=timeout_s, connect_retry_s=connect_retry_s)
        self._concurrency = concurrency
        self._on_wait = on_wait
        self._http = httpx.AsyncClient(**settings(base_url, api_key, priority), mounts=direct_hosts(base_url))

    @overload
    async def encode(
        self,
        model: str,
        texts: Texts,
        *,
        kinds: Literal["dense"] = "dense",
        errors: Literal["raise"] = "raise",
        **options: Unpack[EncodeOptions],
    ) -> Array: ...
    @overload
    async def encode(
        self, model: str, texts: Texts, *, errors: Literal["return"], **options: Unpack[EncodeOptions]
    ) -> list[Array | ShoalError]: ...
    @overload
    async def encode(
        self,
        model: str,
        texts: Texts,
        *,
        kinds: Literal["sparse", "multivector"] | None,
        errors: Literal["raise", "return"] = "raise",
        **options: Unpack[EncodeOptions],
    ) -> Any: ...
    async def encode(self, model: str, texts: Texts, **options: Any) -> Any:
        """See `Client.encode`."""
        return await self._run(encode(self._terms, model, texts, **options))

    async def score(
        self, model: str, query: Item, documents: Texts, **options: Unpack[ScoreOptions]
    ) -> list[Ranked]:
        """See `Client.score`."""
        return await self._run(score(self._terms, model, query, documents, **options))

    async def push(
        self,
        folder: str | Path,
        name: str,
        *,
        base: str | None = None,
        reference: Reference | None = None,
        note: str = "",
        facts: Mapping[str, Any] | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Pushed:
        """See `Client.push`. Files are read on another thread at first, and then as they are sent."""
        asked = Asked(
            name=name, base=base or "", reference=reference, note=note, facts=facts or {}, dry_run=dry_run
        )
        limits = await self._run(pushing.limits(self._terms, name, asked.base))
        opening = opened(folder, progress or pushing.silent, limits)
        read = await asyncio.to_thread(opening.__enter__)
        try:
            return await self._run(pushing.push(self._terms, read, asked, progress))
        finally:
            opening.__exit__(None, None, None)

    async def alias(self, name: str, alias: str, version: int = 0) -> dict[str, Any]:
        """See `Client.alias`."""
        return await self._run(pushing.alias(self._terms, name, alias, version))

    async def rollback(self, name: str, alias: str = "", version: int = 0) -> dict[str, Any]:
        """See `Client.rollback`."""
        return await self._run(pushing.rollback(self._terms, name, alias, version))

    async def remove(self, name: str) -> dict[str, Any]:
        """See `Client.remove`."""
        return await self._run(pushing.remove(self._terms, name))

    async def history(self, name: str) -> list[dict[str, Any]]:
        """See `Client.history`."""
        return await self._run(pushing.history(self._terms, name))

    async def pushed(self, name: str) -> dict[str, Any]:
        """See `Client.pushed`."""
        return await self._run(pushing.pushed(self._terms, name))

    async def models(self, *, catalog: bool = False) -> list[dict[str, Any]]:
        """See `Client.models`."""
        return await self._run(calls.models(self._terms, catalog=catalog))

    async def model(self, name: str) -> dict[str, Any]:
        """See `Client.model`."""
        return await self._run(calls.model(self._terms, name))

    async def ready(self) -> bool:
        """See `Client.ready`."""
        return await self._run(calls.ready(self._terms))

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, call: Call[T]) -> T:
        """The first error cancels what else is under way."""
        gate = asyncio.Semaphore(self._concurrency)

        async def drive(flow: Flow[Any]) -> Any:
            async with gate:
                return await self._drive(flow)

        if len(call.flows) == 1:
            return call.join([await self._drive(call.flows[0])])
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(drive(flow)) for flow in call.flows]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return call.join([task.result() for task in tasks])

    async def _drive(self, flow: Flow[T]) -> T:
        outcome: Outcome | None = None
        while True:
            try:
                action = flow.send(outcome)
            except StopIteration as e:
                return e.value  # type: ignore[no-any-return]  # a generator's return value is untyped
            if isinstance(action, Send):
                outcome = await self._send(action)
            else:
                tell(action, self._terms, self._on_wait)
                await asyncio.sleep(action.seconds)
                outcome = None

    async def _send(self, send: Send) -> Outcome:
        request = send.request
        try:
            # httpx bounds each read, not their sum: an answer that trickles would never time out.
            async with asyncio.timeout(send.timeout_s):
                response = await self._http.request(
                    request.method,
                    request.path,
                    content=request.body or None,
                    headers=dict(request.headers),
                    timeout=timeouts(send),
                )
        except TimeoutError:
            return ConnectionFailed("timeout", "the answer came too slowly")
        except httpx.RequestError as e:
            return failed(e)
        return Received(response.status_code, dict(response.headers), response.content)
