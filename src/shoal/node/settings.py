"""What a node is started with."""

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`memory_bytes` bounds the measured footprints of all runtimes together. `devices` are of one kind; each may
    hold one replica of a model.
    """

    memory_bytes: int
    pinned: frozenset[str] = frozenset()
    devices: tuple[str, ...] = ("cpu",)
