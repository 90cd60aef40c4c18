"""A model with no weights: the virtual runtime's stand-in. Its folder holds the cost it pretends to have."""

from pathlib import Path

import msgspec

from shoal.catalog import Taking, Virtual


def fetch(source: Virtual, into: Path, taking: Taking) -> str:
    """Write `virtual.json`: {"seconds": …, "seconds_per_token": …}."""
    cost = {"seconds": source.seconds, "seconds_per_token": source.seconds_per_token}
    (into / "virtual.json").write_bytes(msgspec.json.encode(cost))
    taking.report("writing", 0, 0)
    return ""
