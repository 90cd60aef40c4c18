"""What a node tells of its models, for listings, readiness, metrics and the page."""

from typing import Literal

import msgspec


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`state` "absent" means: known, files here, loaded at the next request. Memory is measured, in bytes."""

    state: Literal["absent", "loading", "ready", "stopping", "failed"]
    pinned: bool = False
    memory_bytes: int = 0
    runtime: str = ""
    device: str = ""
    dtype: str = ""
    tolerance: float = 0.0
    waiting_items: int = 0
    flying_items: int = 0
    loaded_at: float = 0.0
    failure: str = ""
