"""A model with no weights: the virtual runtime's stand-in. Its folder holds the device it pretends to be."""

from pathlib import Path

import msgspec

from shoal.catalog import Taking, Virtual
from shoal.catalog.virtual_device import VirtualDevice


def fetch(source: Virtual, into: Path, taking: Taking) -> str:
    """Write `virtual.json`."""
    device = VirtualDevice(**msgspec.structs.asdict(source))
    (into / "virtual.json").write_bytes(msgspec.json.encode(device))
    taking.report("writing", 0, 0)
    return ""
