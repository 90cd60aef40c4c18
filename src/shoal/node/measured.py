"""What was measured of each model on this machine, kept on disk between runs. One small file a model."""

import contextlib
import logging
import os
from pathlib import Path

import msgspec

from shoal.node.line import Known

log = logging.getLogger("shoal.node")


class MeasuredStore:
    """`folder` is made when first written. A file that cannot be read counts as nothing known."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, digest: str, runtime: str) -> Known:
        try:
            return msgspec.json.decode(self._path(digest, runtime).read_bytes(), type=Known)
        except (OSError, msgspec.DecodeError, RecursionError, ValueError):
            return Known()

    def save(self, digest: str, runtime: str, known: Known) -> None:
        """Written beside and renamed, so that a reader never sees half of it. A full disk is only logged."""
        path = self._path(digest, runtime)
        beside = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(msgspec.json.encode(known))
            beside.replace(path)
        except OSError as error:
            log.warning("measurements not kept: %s", error)
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)

    def _path(self, digest: str, runtime: str) -> Path:
        return self._folder / f"{digest[:32]}.{runtime}.json"
