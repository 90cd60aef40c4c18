"""The gateway's limits. Each is named, in a refusal, by the option that changes it."""

import msgspec

from shoal.catalog.manifests import (
    MAX_ARTIFACT_BYTES,
    MAX_ARTIFACT_FILES,
    MAX_UNFINISHED_BYTES,
    MAX_UNFINISHED_BYTES_PER_KEY,
)


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in bytes, times in seconds. `keys` are sha256 digests of API keys; none: nobody is asked."""

    max_body_bytes: int = 32 * 1024 * 1024
    body_timeout_s: float = 30.0
    head_timeout_s: float = 30.0
    write_timeout_s: float = 30.0
    max_head_bytes: int = 64 * 1024
    max_in_flight: int = 4096
    max_in_flight_bytes: int = 512 * 1024 * 1024
    max_unread_bytes: int = 512 * 1024 * 1024
    max_connections: int = 8192
    timeout_s: float = 120.0
    max_timeout_s: float = 600.0
    max_artifact_bytes: int = MAX_ARTIFACT_BYTES
    max_artifact_files: int = MAX_ARTIFACT_FILES
    max_unfinished_bytes: int = MAX_UNFINISHED_BYTES
    max_unfinished_bytes_per_key: int = MAX_UNFINISHED_BYTES_PER_KEY
    keys: frozenset[bytes] = frozenset()
    access_log: bool = False
