"""What given processes and all below them take: processor time and memory. Needs psutil; for PSS, Linux."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shoal.protocol.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    import psutil


class Memory(msgspec.Struct, frozen=True):
    """Bytes of all of them. PSS shares what several processes map among them; 0 where the system does not tell."""

    pss_bytes: int
    rss_bytes: int
    processes: int


class Processes:
    """The processes `pids` and their children, looked up anew at each question: workers come and go."""

    def __init__(self, pids: Sequence[int]) -> None:
        """Raises NotFound for a pid that is none, InvalidInput where psutil is not installed."""
        try:
            import psutil
        except ImportError as e:
            raise InvalidInput("watching processes needs psutil: pip install 'shoal[bench]'") from e
        self._gone = (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied)
        try:
            self._roots = [psutil.Process(pid) for pid in pids]
        except psutil.NoSuchProcess as e:
            raise NotFound(f"no process has the id {e.pid}") from e

    def cpu_s(self) -> float:
        """Seconds of processor time so far, those of ended children that their parent waited for included."""
        total = 0.0
        for process in self._all():
            try:
                total += sum(process.cpu_times()[:4])  # user, system, and of ended children the same
            except self._gone:
                continue
        return total

    def memory(self) -> Memory:
        pss = rss = count = 0
        for process in self._all():
            try:
                rss += process.memory_info().rss
            except self._gone:
                continue
            pss += _pss_bytes(process.pid)
            count += 1
        return Memory(pss, rss, count)

    def _all(self) -> "Iterator[psutil.Process]":
        found: dict[int, psutil.Process] = {}
        for root in self._roots:
            try:
                found.update({process.pid: process for process in (root, *root.children(recursive=True))})
            except self._gone:
                continue
        yield from found.values()


def _pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
