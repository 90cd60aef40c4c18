"""A checkpoint's config and weights, mapped from `model.safetensors` or its shards without copying.

Names are made the same for all: nothing before `embeddings.` (no `bert.`, `roberta.`, `model.`), and norms say
weight and bias where old files say gamma and beta.
"""

import json
import math
import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.tensors import Array

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "U8": "|u1"}
"""numpy has no bfloat16: its bits travel as u2, which no other kind here uses."""
_MAX_HEADER_BYTES = 100_000_000
_WORDS = re.compile(r"(.*?)embeddings\.(word|tok)_embeddings\.weight")
_SHARD = re.compile(r"[\w.-]+\.safetensors")


class Table:
    """Rows looked up in the mapped file, in whatever dtype they have there: a vocabulary of 250,000 entries is
    never held in memory as a whole."""

    def __init__(self, stored: Array) -> None:
        """`stored` [n, width] as it is in the file."""
        self._stored = stored
        self.shape: tuple[int, int] = stored.shape

    def take(self, index: Array) -> Array:
        """index [tokens] → a new array [tokens, width], fp32."""
        return _as_fp32(self._stored.take(index, axis=0))


class Checkpoint:
    """Raises ModelLoadFailed wherever a file, weight or setting is missing or is not what was expected."""

    def __init__(self, folder: Path) -> None:
        self.config = read_json(folder / "config.json")
        found = {name: array for path in _files(folder) for name, array in _map_tensors(path)}
        words = next((match for name in found if (match := _WORDS.fullmatch(name))), None)
        prefix = words[1] if words else ""
        self._arrays = {_plain(name.removeprefix(prefix)): array for name, array in found.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def weight(self, name: str, *shape: int) -> Array:
        """The weight `name` as fp32. It has to have this shape, where -1 stands for any length."""
        return _as_fp32(self._stored(name, shape))

    def table(self, name: str, rows: int, width: int) -> Table:
        """The weight `name`, left in its file. It has to have this shape, where -1 stands for any length."""
        return Table(self._stored(name, (rows, width)))

    def setting(self, name: str, default: Any = None) -> Any:
        """A value of config.json, or `default` where it says nothing."""
        value = self.config.get(name)
        value = default if value is None else value
        if value is None:
            raise ModelLoadFailed(f"config.json does not say {name!r}")
        return value

    def _stored(self, name: str, shape: tuple[int, ...]) -> Array:
        if name not in self._arrays:
            raise ModelLoadFailed(f"the checkpoint has no weight named {name!r}")
        found = self._arrays[name]
        fits = len(found.shape) == len(shape) and all(
            wanted in (-1, n) for wanted, n in zip(shape, found.shape, strict=True)
        )
        if not fits:
            raise ModelLoadFailed(f"weight {name!r} has the shape {found.shape}, not {shape}")
        return found


def read_json(path: Path) -> dict[str, Any]:
    """Raises ModelLoadFailed where there is no such file or it holds no JSON object."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as e:
        raise ModelLoadFailed(f"cannot read {path.name}: {e}") from e
    if not isinstance(value, dict):
        raise ModelLoadFailed(f"{path.name} holds no JSON object")
    return value


def _files(folder: Path) -> list[Path]:
    """`model.safetensors`, or the shards that its index names; those stand beside it and nowhere else."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file() or not index.is_file():
        return [folder / "model.safetensors"]
    places = read_json(index).get("weight_map")
    names = list(places.values()) if isinstance(places, dict) else []
    if not names or not all(isinstance(name, str) and _SHARD.fullmatch(name) for name in names):
        raise ModelLoadFailed(f"{index.name} does not name the files of a checkpoint in this folder")
    return [folder / name for name in sorted(set(names))]


def _plain(name: str) -> str:
    if name.endswith(".gamma"):
        return name.removesuffix("gamma") + "weight"
    if name.endswith(".beta"):
        return name.removesuffix("beta") + "bias"
    return name


def _as_fp32(array: Array) -> Array:
    if array.dtype == np.dtype("<u2"):
        return (array.astype("<u4") << 16).view("<f4")
    return array.astype("<f4", copy=False)


def _map_tensors(path: Path) -> Iterator[tuple[str, Array]]:
    """Views on a private mapping of the file: engines insist on memory that could be written.

    Format: u64 length, a JSON header of that length, then the data.
    Our own reader because the library's copies every weight: 0.1 s and 80 MB more for MiniLM.
    """
    try:
        with path.open("rb") as file:
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        start = 8 + int.from_bytes(mapped[:8], "little")
        if start > min(len(mapped), _MAX_HEADER_BYTES):
            raise ValueError("its header is longer than the file")
        header: dict[str, dict[str, Any]] = json.loads(bytes(mapped[8:start]))
        header.pop("__metadata__", None)
        for name, entry in header.items():
            yield name, _view(mapped[start:], **entry)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as e:
        raise ModelLoadFailed(f"cannot read {path.name}: {e}") from e


def _view(data: memoryview, dtype: str, shape: list[int], data_offsets: list[int]) -> Array:
    begin, end = data_offsets
    kind = np.dtype(_DTYPES[dtype])
    if not 0 <= begin <= end <= len(data) or end - begin != math.prod(shape) * kind.itemsize:
        raise ValueError("a weight lies outside the file or does not fill its shape")
    return np.frombuffer(data[begin:end], dtype=kind).reshape(shape)
