"""An environment of its own for each peer, made once and kept in .cache/peers until what it needs changes.

pip's own configuration says where packages come from. Knows no peer.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

PEERS = Path(__file__).parent.parent / ".cache" / "peers"


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """`python` is the version that a peer asks for, "" where ours will do. `without` is uninstalled again, and the
    package `known_as`, if any, is given a second entry under that name and version among what is installed.
    """

    requirements: tuple[str, ...]
    python: str = ""
    without: tuple[str, ...] = ()
    known_as: tuple[str, str] | None = None


class NotHere(Exception):
    """A peer that cannot be had on this machine; the words say why."""


def environment(name: str, needs: Needs) -> Path:
    """The folder of its programs, made where it is not there yet. Raises NotHere."""
    folder = PEERS / name
    mark = folder / "made-of"
    wanted = hashlib.sha256(msgspec.json.encode(needs)).hexdigest()
    if not mark.exists() or mark.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        _make(name, folder, needs)
        mark.write_text(wanted)
    return folder / "bin"


def _make(name: str, folder: Path, needs: Needs) -> None:
    python = _python(needs.python)
    print(f"        making an environment for {name}; this takes minutes, once", flush=True)
    log = PEERS / f"{name}.log"
    PEERS.mkdir(parents=True, exist_ok=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    with log.open("w") as output:
        commands = [[python, "-m", "venv", str(folder)], [*pip, "install", *needs.requirements]]
        commands += [[*pip, "uninstall", "-y", *needs.without]] if needs.without else []
        for command in commands:
            if subprocess.run(command, stdout=output, stderr=subprocess.STDOUT).returncode:
                raise NotHere(f"it could not be installed; why stands in .cache/peers/{log.name}")
    if needs.known_as is not None:
        _enter(folder, *needs.known_as)


def _enter(folder: Path, name: str, version: str) -> None:
    (packages,) = folder.glob("lib/python3*/site-packages")
    entry = packages / f"{name}-{version}.dist-info"
    entry.mkdir()
    (entry / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def _python(version: str) -> str:
    if not version:
        return sys.executable
    for candidate in _candidates(version):
        if subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    raise NotHere(f"no working python{version} was found")


def _candidates(version: str) -> Iterator[str]:
    """The one on the path, and pyenv's, whose own may refuse to run."""
    found = shutil.which(f"python{version}")
    if found:
        yield found
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
    for folder in sorted((pyenv / "versions").glob(f"{version}.*"), reverse=True):
        yield str(folder / "bin" / "python")
