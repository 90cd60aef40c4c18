"""Waking on time. An event loop's own timers are good to a millisecond, a fifth of what a short text takes, and to
wait the rest out by looking at the clock would take the cores that are being measured. Linux has better.
"""

import asyncio
import ctypes
import os
import sys
import time

_ABSOLUTE = 1  # TFD_TIMER_ABSTIME; see timerfd_create(2)


class _Spec(ctypes.Structure):
    """struct itimerspec: an interval, and the time of the first alarm."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("every_s", "every_ns", "at_s", "at_ns"))


class Alarm:
    """On a running event loop, for one waiter at a time. `close` it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._fired: asyncio.Future[None] | None = None
        self._timer = -1
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._timer = self._libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._timer >= 0:
            self._loop.add_reader(self._timer, self._fire)

    async def until(self, at: float) -> None:
        """Return at `at` on the clock of time.perf_counter, or soon after."""
        if self._timer < 0:
            await asyncio.sleep(at - time.perf_counter())
            return
        spec = _Spec(at_s=int(at), at_ns=int(at % 1 * 1e9) or 1)
        self._fired = self._loop.create_future()
        self._libc.timerfd_settime(self._timer, _ABSOLUTE, ctypes.byref(spec), None)
        await self._fired

    def close(self) -> None:
        if self._timer >= 0:
            self._loop.remove_reader(self._timer)
            os.close(self._timer)

    def _fire(self) -> None:
        try:
            os.read(self._timer, 8)
        except BlockingIOError:
            return
        if self._fired is not None and not self._fired.done():
            self._fired.set_result(None)
