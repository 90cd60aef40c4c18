"""A model from a repository on a model hub, by the hub's own client: HF_ENDPOINT, HF_TOKEN and HF_HOME are its
affair. Only files that a model needs come, each checked against what the hub says of it.

An add that was interrupted goes on where it stopped: whole files and parts wait in the store's `downloads`.
"""

import io
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.catalog import Folder, Hub, Taking
from shoal.catalog import folder as folders
from shoal.catalog.artifacts import copy, matches
from shoal.catalog.choice import choose_files
from shoal.catalog.hub_errors import endpoint, first_line, not_cached, refusal
from shoal.catalog.names import slug
from shoal.catalog.offline import offline_by
from shoal.families.lora_config import CONFIG
from shoal.protocol.errors import ModelLoadFailed, ShoalError
from shoal.version import __version__

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

_WEIGHTS = (".safetensors", ".onnx", "_data", ".data")
_ASK_WITHIN_S = 30.0
_COMMIT = re.compile("[0-9a-f]{40,64}")


def fetch(source: Hub, into: Path, taking: Taking) -> str:
    """Returns the commit. Raises InvalidInput where the repository holds nothing that can be served,
    ModelNotFound where there is no such repository or revision, ModelLoadFailed where it cannot be had.
    """
    if setting := offline_by("HF_HUB_OFFLINE"):
        return _from_cache(source, into, taking, setting)
    taking.report(f"asking for {source.repo}", 0, 0)
    info = _ask(source)
    commit = str(info.sha)
    if not _COMMIT.fullmatch(commit):  # it is going to name a folder
        raise ModelLoadFailed(f"the hub answered for {source.repo} with no commit, but with {commit[:60]!r}")
    listed = {sibling.rfilename: sibling for sibling in info.siblings or ()}
    chosen = choose_files({name: sibling.size or 0 for name, sibling in listed.items()})
    begun = _begun(taking.begun / slug(source.repo), commit)
    files = [_File(source.repo, commit, listed[name], begun / target) for target, name in chosen.items()]
    taking.need(sum(file.missing_bytes for file in files))
    progress = _Progress(taking, files)
    for file in files:
        if not file.is_weights:
            file.bring(progress)
            copy(file.path, into / file.path.relative_to(begun))
    taking.look()
    for file in files:
        if file.is_weights:
            file.bring(progress)
    for file in files:  # all are here: nothing is taken out of `begun` before
        if file.is_weights:
            target = into / file.path.relative_to(begun)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.path.replace(target)
    shutil.rmtree(begun.parent)
    return commit


class _File:
    """One file of a commit on its way to `path`; what is there of it so far stands beside, as `….part`."""

    def __init__(self, repo: str, commit: str, listed: "RepoSibling", path: Path) -> None:
        self.repo, self.commit, self.listed, self.path = repo, commit, listed, path
        self.part = path.with_name(f"{path.name}.part")
        self.size_bytes = max(0, int(listed.size or 0))
        """0 where the hub does not say."""
        self.is_weights = listed.rfilename.endswith(_WEIGHTS)

    @property
    def here_bytes(self) -> int:
        return next((path.stat().st_size for path in (self.path, self.part) if path.is_file()), 0)

    @property
    def missing_bytes(self) -> int:
        return max(0, self.size_bytes - self.here_bytes)

    def bring(self, progress: "_Progress") -> None:
        """Raises ModelLoadFailed where it does not arrive, or is not what the hub listed."""
        if self.path.is_file():
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.here_bytes > self.size_bytes:
            self.part.unlink(missing_ok=True)
        if not self.here_bytes and (cached := _cached(self.repo, self.commit, self.listed.rfilename)):
            copy(cached, self.part)
        with _Counted(self, progress) as file:
            self._get(file)
        if not matches(self.part, sha256=_sha256(self.listed), blob=self.listed.blob_id or ""):
            self.part.unlink()
            raise ModelLoadFailed(
                f"{self.listed.rfilename} of {self.repo} is not what the hub says it holds: it was changed on its "
                "way. Nothing of it was kept; `shoal add` again fetches it anew"
            )
        self.part.replace(self.path)

    def _get(self, file: "_Counted") -> None:
        from huggingface_hub import hf_hub_url
        from huggingface_hub.file_download import http_get

        name = self.listed.rfilename
        try:
            http_get(
                hf_hub_url(self.repo, name, revision=self.commit, endpoint=endpoint()),
                file,
                resume_size=file.tell(),
                headers=_headers(),
                expected_size=self.listed.size,
                displayed_filename=name,
            )
        except ShoalError:
            raise  # ours, by the file it writes to
        except Exception as e:  # its transport, and so its errors, differ between releases of the client
            if getattr(e, "response", None) is not None:
                raise refusal(Hub(self.repo, self.commit), e) from e
            raise ModelLoadFailed(
                f"{name} of {self.repo} did not arrive whole: {first_line(e)}. "
                f"`shoal add` again goes on from {file.tell()} of {self.size_bytes} bytes"
            ) from e


class _Counted(io.FileIO):
    """The end of a part, told to the progress with every piece that is written. Takes no more than was listed."""

    def __init__(self, file: _File, progress: "_Progress") -> None:
        super().__init__(file.part, "ab")
        self._file, self._progress = file, progress

    def write(self, data: Any, /) -> int:
        self._check(len(data))
        written = super().write(data)
        self._progress.show()
        return written

    def _check(self, more_bytes: int) -> None:
        """Of a file whose size is not listed, whether the disk takes it. Raises what ends the add."""
        listed = self._file.size_bytes
        if not listed:
            self._progress.need(more_bytes)
        elif self.tell() + more_bytes > listed:
            self._file.part.unlink()
            raise ModelLoadFailed(
                f"{self._file.listed.rfilename} of {self._file.repo} has {listed} bytes by the hub's list, and "
                "more came. Nothing of it was kept"
            )


class _Progress:
    def __init__(self, taking: Taking, files: list[_File]) -> None:
        self.need, self._report, self._files = taking.need, taking.report, files
        self._total = sum(file.size_bytes for file in files)

    def show(self) -> None:
        self._report("fetching", sum(file.here_bytes for file in self._files), self._total)


def _ask(source: Hub) -> Any:
    # Its client would ask the hub for a list by which to tell it what program started us.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import HfApi
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]  # it is documented

    disable_progress_bars()  # ours is shown
    api = HfApi(endpoint=endpoint(), library_name="shoal", library_version=__version__)
    try:
        return api.model_info(
            source.repo, revision=source.revision or None, files_metadata=True, timeout=_ASK_WITHIN_S
        )
    except Exception as e:  # as in `_get`
        raise refusal(source, e) from e


def _from_cache(source: Hub, into: Path, taking: Taking, setting: str) -> str:
    """Offline: a snapshot that the hub's client has in its cache, found by the file that every model, or adapter,
    needs."""
    revision = source.revision or "main"
    found = _cached(source.repo, revision, "tokenizer.json") or _cached(source.repo, revision, CONFIG)
    if found is None:
        raise not_cached(source, setting)
    folders.fetch(Folder(str(found.parent)), into, taking)
    return found.parent.name


def _cached(repo: str, revision: str, name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo, name, revision=revision)
    return Path(found) if isinstance(found, str) else None


def _begun(folder: Path, commit: str) -> Path:
    """Where this commit's files wait; those of another are of no use any more."""
    for other in folder.iterdir() if folder.is_dir() else ():
        if other.name != commit:
            shutil.rmtree(other)
    return folder / commit


def _sha256(listed: "RepoSibling") -> str:
    return str(listed.lfs.sha256) if listed.lfs else ""


def _headers() -> dict[str, str]:
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # it is documented

    return dict(build_hf_headers(library_name="shoal", library_version=__version__))
