"""What the processor can do, read from the system. No engine is imported to find out."""

import functools
from pathlib import Path


@functools.cache
def cpu_flags() -> frozenset[str]:
    """The processor's feature flags as Linux names them; empty where it does not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())


def has_bf16() -> bool:
    """Whether matrix products in bf16 are done by the processor itself."""
    return bool(cpu_flags() & {"avx512_bf16", "amx_bf16"})
