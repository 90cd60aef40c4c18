"""What a node is started with."""

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`memory_bytes` bounds the measured footprints of all runtimes together, `adapter_bytes` the LoRA adapters
    that one of them holds. `devices` are of one kind; each may hold one replica of a model. Where other nodes take
    from the same lines, a window is to run in half of `latency_s`. What is pushed is given up where its files,
    once here, are not looked at, loaded and computed with within `prove_within_s`.
    """

    memory_bytes: int
    adapter_bytes: int = 1_000_000_000
    pinned: frozenset[str] = frozenset()
    devices: tuple[str, ...] = ("cpu",)
    latency_s: float = 0.1
    prove_within_s: float = 120.0
