"""A process and all below it, as one: stopped, let go on, waited for, ended."""

import contextlib
import signal
import time

import psutil

from shoal.lab.processes import Processes

GONE = (psutil.NoSuchProcess, psutil.AccessDenied)


class Tree:
    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self.processes = Processes([pid])

    def members(self) -> list[psutil.Process]:
        """Those now alive, the root first."""
        with contextlib.suppress(*GONE):
            return [self._root, *self._root.children(recursive=True)]
        return []

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def settle(self, within_s: float = 3.0) -> None:
        """Wait until they do next to nothing, what a load left behind being over; or so long, for some spin."""
        until = time.monotonic() + within_s
        used = self.processes.cpu_s()
        while time.monotonic() < until:
            time.sleep(0.1)
            before, used = used, self.processes.cpu_s()
            if used - before < 0.03:
                return

    def end(self, within_s: float = 20.0) -> None:
        """Ask the root to end, then see to it that none is left."""
        members = self.members()
        self.thaw()
        with contextlib.suppress(*GONE):
            self._root.terminate()
        _, left = psutil.wait_procs(members, within_s)
        for process in left:
            with contextlib.suppress(*GONE):
                process.kill()
        psutil.wait_procs(left, 10)

    def _signal(self, number: int) -> None:
        for process in self.members():
            with contextlib.suppress(*GONE):
                process.send_signal(number)
