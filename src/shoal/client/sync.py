"""The blocking client: drives the flows of a call with httpx, several at a time where a call has several.

A large input is cut into requests, and a server that had to wait for our next one would leave its device
idle meanwhile; so up to `concurrency` are under way at once, on threads that live as long as the call.
"""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
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
from shoal.protocol.errors import Cancelled, ShoalError
from shoal.protocol.tensors import Array

T = TypeVar("T")


class Client:
    """Asks a Shoal server. May be shared by threads; close it, or use it in a `with` block."""

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
        """`timeout_s` bounds each request with all its retries (a large input is several requests);
        `connect_retry_s` is for how long a server that refuses connections is tried again, 0 not at all;
        `concurrency` is how many requests of one call are under way at once; `on_wait` is told, before each wait
        for another attempt, what the last one came to, and for how many seconds at most attempts go on.
        """
        self._terms = Terms(base_url=base_url, timeout_s=timeout_s, connect_retry_s=connect_retry_s)
        self._concurrency = concurrency
        self._on_wait = on_wait
        self._http = httpx.Client(**settings(base_url, api_key, priority), mounts=direct_hosts(base_url))

    @overload
    def encode(
        self,
        model: str,
        texts: Texts,
        *,
        kinds: Literal["dense"] = "dense",
        errors: Literal["raise"] = "raise",
        **options: Unpack[EncodeOptions],
    ) -> Array: ...
    @overload
    def encode(
        self, model: str, texts: Texts, *, errors: Literal["return"], **options: Unpack[EncodeOptions]
    ) -> list[Array | ShoalError]: ...
    @overload
    def encode(
        self,
        model: str,
        texts: Texts,
        *,
        kinds: Literal["sparse", "multivector"] | None,
        errors: Literal["raise", "return"] = "raise",
        **options: Unpack[EncodeOptions],
    ) -> Any: ...
    def encode(self, model: str, texts: Texts, **options: Any) -> Any:
        """Vectors [n, dims] of many texts, or [dims] of a single string or mapping; no texts give no rows.

        `kinds="sparse"` gives a pair of arrays (indices, values) for each text, `kinds="multivector"` an array
        [tokens, dims], both in a list where there are many texts; `kinds=None` what the model gives first.

        Options are those of `EncodeOptions`: is_query, prompt_name, instruction, dimensions, dtype, normalize,
        truncate. If some of many texts fail, ItemsFailed is raised, which holds the vectors of the others;
        `errors="return"` gives a list instead, with the vector or the exception of each text in its place.
        """
        return self._run(encode(self._terms, model, texts, **options))

    def score(self, model: str, query: Item, documents: Texts, **options: Unpack[ScoreOptions]) -> list[Ranked]:
        """The documents by how well they answer the query, best first, equals in the order given.

        For late interaction, query and documents may be vectors [tokens, dims] made by `encode`.

        Options are those of `ScoreOptions`: top_n, raw, label (which output of a model with several is the
        score), instruction, prompt_name, truncate. Raises ItemsFailed if some documents could not be scored,
        with the ranking of the others.
        """
        return self._run(score(self._terms, model, query, documents, **options))

    def push(
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
        """Make the model or LoRA adapter in `folder` (or a .tar or .tar.gz of it) the next version of `name`.

        What the server has already is not sent, and a push that was interrupted goes on where it stopped. A node
        loads it once and computes a few rows, before anybody else can ask for it; those of `reference` (see
        `reference.rows_of`) are compared. `base` names the model that an adapter is for, if its own file does not;
        `facts` what the files do not say, as on a card. `dry_run` proves it and keeps nothing. `timeout_s` of this
        client bounds the proof, and the sending of each part.

        Raises InvalidInput for what cannot be served, with the reason, Forbidden, Conflict, and what encode does.
        """
        asked = Asked(
            name=name, base=base or "", reference=reference, note=note, facts=facts or {}, dry_run=dry_run
        )
        limits = self._run(pushing.limits(self._terms, name, asked.base))
        with opened(folder, progress or pushing.silent, limits) as read:
            return self._run(pushing.push(self._terms, read, asked, progress))

    def alias(self, name: str, alias: str, version: int = 0) -> dict[str, Any]:
        """Let `name@alias` mean a version, 0 for the current one; the name's versions and aliases after that."""
        return self._run(pushing.alias(self._terms, name, alias, version))

    def rollback(self, name: str, alias: str = "", version: int = 0) -> dict[str, Any]:
        """Let `name`, or `name@alias`, mean again what it meant before, or the `version` given."""
        return self._run(pushing.rollback(self._terms, name, alias, version))

    def remove(self, name: str) -> dict[str, Any]:
        """Forget a pushed name, or one version or alias of it: `name@3`, `name@prod`."""
        return self._run(pushing.remove(self._terms, name))

    def history(self, name: str) -> list[dict[str, Any]]:
        """Every change of a pushed name: who, when, what; the first first."""
        return self._run(pushing.history(self._terms, name))

    def pushed(self, name: str) -> dict[str, Any]:
        """A pushed name's versions and aliases. Raises ModelNotFound."""
        return self._run(pushing.pushed(self._terms, name))

    def models(self, *, catalog: bool = False) -> list[dict[str, Any]]:
        """What can be served now, the default first, as the server describes it; `catalog`: every card."""
        return self._run(calls.models(self._terms, catalog=catalog))

    def model(self, name: str) -> dict[str, Any]:
        """One model, as the server describes it. Raises ModelNotFound."""
        return self._run(calls.model(self._terms, name))

    def ready(self) -> bool:
        """Whether a server answers and is able to serve. One look, no waiting, no error."""
        return self._run(calls.ready(self._terms))

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, call: Call[T]) -> T:
        """Returns once nothing of the call is under way; the first error ends all waits and attempts."""
        over = threading.Event()
        if len(call.flows) < 2 or self._concurrency < 2:
            return call.join([self._drive(flow, over) for flow in call.flows])
        with ThreadPoolExecutor(min(self._concurrency, len(call.flows)), "shoal-client") as pool:
            futures = [pool.submit(self._drive, flow, over) for flow in call.flows]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                over.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return call.join([future.result() for future in futures])

    def _drive(self, flow: Flow[T], over: threading.Event) -> T:
        outcome: Outcome | None = None
        while True:
            try:
                action = flow.send(outcome)
            except StopIteration as e:
                return e.value  # type: ignore[no-any-return]  # a generator's return value is untyped
            if over.is_set():
                raise Cancelled("another request of this call failed")
            if isinstance(action, Send):
                outcome = self._send(action)
            else:
                tell(action, self._terms, self._on_wait)
                over.wait(action.seconds)
                outcome = None

    def _send(self, send: Send) -> Outcome:
        request, until = send.request, self._terms.now() + send.timeout_s
        body = bytearray()
        try:
            with self._http.stream(
                request.method,
                request.path,
                content=request.body or None,
                headers=dict(request.headers),
                timeout=timeouts(send),
            ) as response:
                # httpx bounds each read, not their sum: an answer that trickles would never time out.
                for piece in response.iter_bytes():
                    body += piece
                    if self._terms.now() > until:
                        return ConnectionFailed("timeout", "the answer came too slowly")
                return Received(response.status_code, dict(response.headers), bytes(body))
        except httpx.RequestError as e:
            return failed(e)
