"""Models that were pushed, in an object store that every gateway and node shares: their files by content, and the
ledger that says what each name means.

    blobs/<sha256>                         a file's content
    artifacts/<digest>.json                a manifest: which files make a model
    ledger/<slug of the name>/<number>.json  one change each, never changed again (ledger.py)
    uploads/<sha256>.<size>/<offset>       chunks of a file that is not complete yet
    damaged/<sha256>                       a blob that was not what its name says when somebody read it

Whatever is half-written has no name that anybody reads. Knows nothing of nodes, boards or HTTP.
"""

from collections.abc import Callable
from pathlib import Path

from shoal.catalog.ledger import Change as Change
from shoal.catalog.ledger import NameState as NameState
from shoal.catalog.manifests import File as File
from shoal.catalog.manifests import Limits as Limits
from shoal.catalog.manifests import Manifest as Manifest
from shoal.catalog.objects import Objects

CHUNK_BYTES = 8 * 1024 * 1024
"""The most that one call of `receive` takes."""


def nobody(name: str) -> bool:
    return False


class Registry:
    def __init__(self, objects: Objects, limits: Limits | None = None) -> None:
        self.objects = objects
        self.limits = limits or Limits()

    async def missing(self, manifest: Manifest) -> dict[str, int]:
        """What is still to be sent: sha256 → bytes of it that are here already. Files that are complete, and empty
        ones, are left out. Raises InvalidInput, PayloadTooLarge for a manifest that is not taken."""
        raise NotImplementedError

    async def receive(self, file: File, offset: int, data: bytes) -> int:
        """The next `data` of a file, at most CHUNK_BYTES; the offset that comes next, the file's size at the end,
        when its hash was right and its blob is there. Also for a file that is there already, whatever the offset.

        Raises Conflict, with the right one as its detail `offset`, for another offset than that; InvalidInput for
        more than the file's size, and, with nothing kept, for a hash that is not the file's."""
        raise NotImplementedError

    async def commit(self, manifest: Manifest) -> str:
        """The digest, by which `fetch` finds the files from now on. Raises Conflict where a file is not complete,
        and what `missing` raises."""
        raise NotImplementedError

    async def manifest(self, digest: str) -> Manifest:
        """Raises NotFound; ModelLoadFailed where it does not have that digest, or is none."""
        raise NotImplementedError

    async def fetch(self, digest: str, into: Path) -> None:
        """The files of an artifact into an empty folder, each checked. Raises NotFound, and ModelLoadFailed where
        one is not what the manifest says; what is in `into` is then worth nothing."""
        raise NotImplementedError

    async def names(self) -> dict[str, NameState]:
        """Every name that was ever pushed, also those that were removed since (not `is_there`); sorted."""
        raise NotImplementedError

    async def state(self, name: str) -> NameState:
        """Of a name that nobody pushed too: number 0, and not `is_there`."""
        raise NotImplementedError

    async def append(
        self, name: str, change: Change, *, since: int | None = None, taken: Callable[[str], bool] = nobody
    ) -> NameState:
        """Write the next entry of `name`; its state after that. Where another was quicker, the change is judged
        anew, and a push is refused if another digest was pushed meanwhile. `since` is the number of the state that
        a pusher saw when it began, so that the whole of the push counts as meanwhile.

        `taken` says whether a name is that of a model that was not pushed. Raises Conflict, InvalidInput,
        ModelNotFound; what the state was is unchanged then."""
        raise NotImplementedError

    async def sweep(self, older_than_s: float) -> int:
        """Remove what is older than that and no version of any name needs: unfinished uploads, artifacts, blobs,
        and what writers that died have left; how many things. Give it more than the longest push takes."""
        raise NotImplementedError
