"""What is given to push, as a folder of a model's files: a folder already, or an archive that is unpacked."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from shoal.catalog.manifests import Limits, Read, read_folder
from shoal.protocol.errors import InvalidInput

_ARCHIVES = (".tar", ".tar.gz", ".tgz")


@contextlib.contextmanager
def opened(given: str | Path, progress: Callable[[str, int, int], None], limits: Limits) -> Iterator[Read]:
    """Its files, each read once, while the block lasts. Raises InvalidInput for what is no model's or adapter's
    folder, and for an archive that holds anything but plain files inside it, or unpacks to far too much.
    """
    path = Path(given).expanduser()
    if path.is_dir():
        yield read_folder(path, progress, limits)
    elif not path.is_file():
        raise InvalidInput(f"there is neither a folder nor a file {path}")
    elif not path.name.lower().endswith(_ARCHIVES):
        raise InvalidInput(f"{path} is neither a folder nor a .tar or .tar.gz of one")
    else:
        from shoal.catalog import Taking, Tar, tar
        from shoal.catalog.artifacts import need_space

        with tempfile.TemporaryDirectory(prefix="shoal-push-") as folder:
            into = Path(folder)
            taking = Taking(progress, lambda size: need_space(into, size), lambda: None, into)
            tar.fetch(Tar(str(path)), into, taking)
            yield read_folder(into, progress, limits)
