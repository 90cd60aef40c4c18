"""What `shoal doctor` looks at. Each check looks at one thing and says how it stands and what to do about it."""

import os
import platform
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Literal

import msgspec

from shoal.catalog import Virtual
from shoal.catalog.budget import disk_budget
from shoal.catalog.store import Store
from shoal.cli._card import runtime_of
from shoal.protocol import sizes
from shoal.protocol.errors import InvalidInput

GB = 1e9
_IMPORT_TIMEOUT_S = 120.0


class Finding(msgspec.Struct, frozen=True):
    level: Literal["ok", "warn", "fail"]
    what: str
    todo: str = ""


def check_python() -> Finding:
    return Finding("ok", f"Python {platform.python_version()} on {platform.system()} {platform.machine()}")


def check_disk(free_bytes: float, home: Path) -> Finding:
    what = f"{sizes.in_words(free_bytes)} free for models under {home}"
    if free_bytes < 0.2 * GB:
        return Finding("fail", what, "make room, or set SHOAL_HOME to a folder on a larger disk")
    if free_bytes < 2 * GB:
        return Finding("warn", what, "enough for a few small models; SHOAL_HOME may name a folder elsewhere")
    return Finding("ok", what)


def check_memory(available_bytes: float | None) -> Finding:
    if available_bytes is None:
        return Finding("warn", "free memory is not known on this system", "a small model needs about 0.4 GB")
    what = f"{sizes.in_words(available_bytes)} of memory available"
    if available_bytes < 0.5 * GB:
        return Finding("fail", what, "one small model needs about 0.4 GB; stop something else")
    if available_bytes < 1.5 * GB:
        return Finding("warn", what, "enough for one or two small models")
    return Finding("ok", what)


def check_cpu(flags: set[str] | None) -> Finding:
    """The names are the kernel's: avx512_bf16 and amx_bf16 on x86, bf16 on Arm."""
    if flags is None:
        return Finding("ok", f"{os.cpu_count()} CPU cores; whether they have bf16 is not known on this system")
    if found := sorted(flags & {"avx512_bf16", "amx_bf16", "bf16"}):
        return Finding("ok", f"{os.cpu_count()} CPU cores with {', '.join(found)}: encoders run in bf16")
    if platform.machine() in ("x86_64", "AMD64") and "avx2" not in flags:
        return Finding("warn", f"{os.cpu_count()} CPU cores without AVX2", "models will run, but slowly")
    return Finding("ok", f"{os.cpu_count()} CPU cores without bf16: models run in fp32, at about half the speed")


def check_engine(module: str, requirement: str) -> Finding:
    """In a process of its own: a library built for another CPU ends the process that imports it."""
    quiet = "from shoal.runtimes.silence import silence; silence()"
    code = f"{quiet}; import {module}; print({module}.__version__)"
    try:
        ran = subprocess.run(  # noqa: S603  our own interpreter and our own words
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=_IMPORT_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Finding("fail", f"{module} does not finish importing", f"reinstall it: pip install '{requirement}'")
    if ran.returncode == 0:
        return Finding("ok", f"{module} {ran.stdout.strip()}")
    why = (ran.stderr.strip().splitlines() or [f"its import ended with {ran.returncode}"])[-1]
    return Finding("fail", f"{module} cannot be imported: {why}", f"pip install '{requirement}'")


def check_store(store: Store) -> list[Finding]:
    """Every file of every model is read."""
    findings = [
        Finding("fail", f"{name}: {why}", f"shoal rm {name}, then add it again")
        for name, why in store.problems.items()
    ]
    for name, model in store.models().items():
        if not store.verify(model):
            todo = f"shoal rm {name}, then add it again"
            findings.append(Finding("fail", f"{name}: its files in {model.folder} were changed", todo))
    return findings or [Finding("ok", f"store {store.home}: {len(store.models())} models, every file as added")]


def check_budget(store: Store) -> list[Finding]:
    """What models take of their budget, and what no model needs."""
    found = []
    taken = sum({model.digest: model.size_bytes for model in store.models().values()}.values())
    try:
        budget = disk_budget()
    except InvalidInput as error:
        return [Finding("fail", f"SHOAL_DISK: {error.message}", "unset it, or set a size like 20GB")]
    if budget:
        level: Literal["ok", "warn"] = "ok" if taken <= budget else "warn"
        todo = "" if taken <= budget else "shoal rm what is not needed, or raise SHOAL_DISK"
        what = f"models take {sizes.in_words(taken)} of {sizes.in_words(budget)} (SHOAL_DISK)"
        found.append(Finding(level, what, todo))
    if loose := sum(leftover.size_bytes for leftover in store.leftovers()):
        found.append(
            Finding("warn", f"{sizes.in_words(loose)} under {store.home} that no model needs", "shoal gc")
        )
    return found


def check_models(store: Store) -> list[Finding]:
    tasks = {
        task
        for model in store.models().values()
        for task in model.facts.tasks
        if not isinstance(model.card.source, Virtual)
    }
    missing = sorted({"encode", "score"} - tasks)
    if missing:
        usual: dict[str, str] = {}
        for card in store.cards().values():
            if card.default and card.listed:
                usual[card.listed.task] = card.name
        return [Finding("warn", f"no model that can {task}", f"shoal add {usual[task]}") for task in missing]
    return [Finding("ok", "there are models that encode and models that score")]


def check_runtimes(store: Store) -> list[Finding]:
    """Models whose runtime is not installed here."""
    runtimes = {name: runtime_of(model) for name, model in store.models().items()}
    return [
        Finding("warn", f"{name} cannot be served here", f"runtime: {said}")
        for name, (said, is_here) in runtimes.items()
        if not is_here
    ]


def check_port(port: int) -> Finding:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as e:
            todo = "stop what listens there (a running `shoal serve`, perhaps), or serve on another port"
            return Finding("warn", f"port {port} on 127.0.0.1 cannot be used: {e.strerror}", todo)
    return Finding("ok", f"port {port} on 127.0.0.1 is free")


def free_disk_bytes(home: Path) -> int:
    """Of the disk that `home` is on, or will be on once it is made."""
    while not home.exists():
        home = home.parent
    return shutil.disk_usage(home).free


def available_memory_bytes(root: Path = Path("/")) -> float | None:
    """What the kernel would give and the container allows; None on systems that do not say. Linux, cgroup 2."""
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        available = next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
    try:
        limit = int((root / "sys/fs/cgroup/memory.max").read_text())
        used = int((root / "sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):  # no such group, or "max"
        return available
    return min(available, limit - used)


def cpu_flags(root: Path = Path("/")) -> set[str] | None:
    try:
        lines = (root / "proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return {flag for line in lines if line.startswith(("flags", "Features")) for flag in line.split()}
