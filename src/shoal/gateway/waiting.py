"""What may end a request before its answer: the client leaving, or a time that passes."""

import asyncio
from collections.abc import Callable
from types import TracebackType

from shoal.gateway.settings import GatewaySettings
from shoal.protocol.errors import Cancelled, DeadlineExceeded, RequestTimeout, ShoalError, over_limit

Leaving = set[Callable[[], None]]
"""Of one connection: what is called when it is lost."""


class Watch:
    """Ends the task that entered it, as asyncio.timeout would, with an error that says why.

    One timer and no task of its own, for the whole of a request: this is on everyone's way.
    """

    def __init__(self, leaving: Leaving, loop: asyncio.AbstractEventLoop) -> None:
        self._leaving, self._loop = leaving, loop
        self._timer: asyncio.TimerHandle | None = None
        self._why: ShoalError | None = None

    def __enter__(self) -> "Watch":
        self._task = asyncio.current_task(self._loop)
        self._leaving.add(self._left)
        return self

    def until(self, seconds: float, error: Callable[[], ShoalError]) -> None:
        """From now on it ends with `error` after so many seconds, and no more at the time that was set before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, seconds), lambda: self._end(error()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raises why it ended, Cancelled where the client left, in place of the cancellation."""
        if self._timer is not None:
            self._timer.cancel()
        self._leaving.discard(self._left)
        task, why = self._task, self._why
        self._task = self._why = None
        if why is not None and task is not None:
            task.uncancel()
            try:
                if kind is asyncio.CancelledError:
                    raise why from None
            finally:
                del why  # an error, its traceback and this frame would keep each other, and the answer, for long

    def _left(self) -> None:
        self._end(Cancelled("the client left"))

    def _end(self, why: ShoalError) -> None:
        if self._why is None and self._task is not None:
            self._why = why
            self._task.cancel()


def too_slow(settings: GatewaySettings) -> ShoalError:
    limit = settings.body_timeout_s
    return over_limit(
        RequestTimeout, "the time taken to send the body", seen=limit, limit=limit,
        setting="--body-timeout", unit="s",
    )  # fmt: skip


def no_answer() -> ShoalError:
    return DeadlineExceeded("no answer came before the deadline; X-Shoal-Timeout-Ms or --timeout changes it")
