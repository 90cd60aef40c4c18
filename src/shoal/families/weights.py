"""A checkpoint's config and weights, mapped from `model.safetensors` or its shards without copying.

Names are made the same for all: nothing before `embeddings.` (no `bert.`, `roberta.`, `model.`), and norms say
weight and bias where old files say gamma and beta.
"""

import json
import math
import mmap
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.tensors import Array

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "U8": "|u1"}
"""numpy has no bfloat16: its bits travel as u2, which no other kind here uses."""
_MAX_HEADER_BYTES = 100_000_000
_ROWS_KEPT = 384
_WORDS = re.compile(r"(.*?)embeddings\.(word|tok)_embeddings\.weight")
_SHARD = re.compile(r"[\w.-]+\.safetensors")


class _Stored(NamedTuple):
    """A weight in whatever dtype its file has it in, and where in the file it begins. No array of a dtype that
    is not known here: what is not asked for may be of any."""

    array: Array | str
    path: Path
    offset: int
    mapped: mmap.mmap


class Table:
    """Rows looked up in the file: a vocabulary of 250,000 entries is never in memory as a whole.

    Linux maps 16 pages for each one touched, so that the whole table would soon count as ours. Hence it is let
    go every now and then; what is still wanted is found again in the system's cache.
    """

    def __init__(self, array: Array, path: Path, offset: int) -> None:
        begin = offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        with path.open("rb") as file:
            length = offset - begin + array.nbytes
            self._mapped = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ, offset=begin)
        flat = np.frombuffer(self._mapped, array.dtype, array.size, offset - begin)
        self._rows = flat.reshape(array.shape)
        self._taken = 0
        self.shape: tuple[int, int] = array.shape

    def take(self, index: Array) -> Array:
        """index [tokens] → a new array [tokens, width], fp32. Called by several threads at once."""
        rows = as_fp32(self._rows.take(index, axis=0))
        self._taken += len(index)
        if self._taken >= _ROWS_KEPT and hasattr(self._mapped, "madvise"):
            self._taken = 0
            self._mapped.madvise(mmap.MADV_DONTNEED)
        return rows


class Checkpoint:
    """Raises ModelLoadFailed wherever a file, weight or setting is missing or is not what was expected."""

    def __init__(self, folder: Path) -> None:
        self.config = read_json(folder / "config.json")
        found = {name: stored for path in _files(folder) for name, stored in _map_tensors(path)}
        words = next((match for name in found if (match := _WORDS.fullmatch(name))), None)
        prefix = words[1] if words else ""
        self._weights = {_plain(name.removeprefix(prefix)): stored for name, stored in found.items()}
        self._asked: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._weights

    def weight(self, name: str, *shape: int) -> Array:
        """The weight `name` as fp32. It has to have this shape, where -1 stands for any length."""
        return as_fp32(self._stored(name, shape)[0])

    def table(self, name: str, rows: int, width: int) -> Table:
        """The weight `name`, left in its file. It has to have this shape, where -1 stands for any length."""
        return Table(*self._stored(name, (rows, width)))

    def matrices(self) -> dict[str, tuple[int, int]]:
        """Name, without `.weight`, and (out, in) of each that is no embedding table."""
        found: dict[str, tuple[int, int]] = {}
        for name, (array, *_) in self._weights.items():
            if name.endswith(".weight") and "embed" not in name and not isinstance(array, str) and array.ndim == 2:
                found[name.removesuffix(".weight")] = array.shape
        return found

    def unused(self) -> dict[str, tuple[int, int]]:
        """Those of `matrices` that nobody has asked for so far."""
        return {name: shape for name, shape in self.matrices().items() if f"{name}.weight" not in self._asked}

    def let_go(self) -> None:
        """No page of the files that was read counts as ours any more. What is wanted still, by an engine to whom
        an array was given, is found again in the system's cache."""
        for mapped in {id(stored.mapped): stored.mapped for stored in self._weights.values()}.values():
            if hasattr(mapped, "madvise"):
                mapped.madvise(mmap.MADV_DONTNEED)

    def setting(self, name: str, default: Any = None) -> Any:
        """A value of config.json, or `default` where it says nothing."""
        value = self.config.get(name)
        value = default if value is None else value
        if value is None:
            raise ModelLoadFailed(f"config.json does not say {name!r}")
        return value

    def count(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number of config.json, or `default` where it says nothing."""
        value = self.setting(name, default)
        if type(value) is not int or value < least:
            raise ModelLoadFailed(f"config.json says {value!r} as {name}, not a whole number from {least}")
        return value

    def _stored(self, name: str, shape: tuple[int, ...]) -> tuple[Array, Path, int]:
        if name not in self._weights:
            raise ModelLoadFailed(f"the checkpoint has no weight named {name!r}")
        self._asked.add(name)
        array, path, offset, _ = self._weights[name]
        if isinstance(array, str):
            raise ModelLoadFailed(f"weight {name!r} is of dtype {array}; known: {', '.join(_DTYPES)}")
        given = array.shape
        if len(given) != len(shape) or any(wanted not in (-1, n) for wanted, n in zip(shape, given, strict=True)):
            raise ModelLoadFailed(f"weight {name!r} has the shape {given}, not {shape}")
        return array, path, offset


def read_json(path: Path) -> dict[str, Any]:
    """Raises ModelLoadFailed where there is no such file or it holds no JSON object."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as e:
        raise ModelLoadFailed(f"cannot read {path.name}: {e}") from e
    if not isinstance(value, dict):
        raise ModelLoadFailed(f"{path.name} holds no JSON object")
    return value


def read_tensors(path: Path, dtypes: Collection[str], header_bytes: int) -> Iterator[tuple[str, Array]]:
    """Every tensor of a safetensors file, in its file and as it is there, for `as_fp32`. Raises ModelLoadFailed,
    also where one is of another dtype than `dtypes`, in the names of the format, or where the header is larger."""
    for name, stored in _map_tensors(path, header_bytes):
        array = stored.array
        if isinstance(array, str) or array.dtype not in [np.dtype(_DTYPES[dtype]) for dtype in dtypes]:
            found = array if isinstance(array, str) else array.dtype
            raise ModelLoadFailed(
                f"tensor {name[:200]!r} is of dtype {found!s:.40}; known here: {', '.join(dtypes)}"
            )
        yield name, array


def as_fp32(array: Array) -> Array:
    """The same numbers; bits of bfloat16 come as u2."""
    if array.dtype == np.dtype("<u2"):
        return (array.astype("<u4") << 16).view("<f4")
    return array.astype("<f4", copy=False)


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


def _map_tensors(path: Path, header_bytes: int = _MAX_HEADER_BYTES) -> Iterator[tuple[str, _Stored]]:
    """Views on a private mapping of the file: engines insist on memory that could be written.

    Format: u64 length, a JSON header of that length, then the data.
    Our own reader because the library's copies every weight: 0.1 s and 80 MB more for MiniLM.
    """
    try:
        with path.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        mapped = memoryview(mapping)
        start = 8 + int.from_bytes(mapped[:8], "little")
        if start > min(len(mapped), header_bytes):
            raise ValueError(f"its header is longer than the file, or than {header_bytes} bytes")
        header: dict[str, dict[str, Any]] = json.loads(bytes(mapped[8:start]))
        header.pop("__metadata__", None)
        for name, entry in header.items():
            known = entry["dtype"] in _DTYPES
            array = _view(mapped[start:], **entry) if known else str(entry["dtype"])
            yield name, _Stored(array, path, start + entry["data_offsets"][0], mapping)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as e:
        raise ModelLoadFailed(f"cannot read {path.name}: {e}") from e


def _view(data: memoryview, dtype: str, shape: list[int], data_offsets: list[int]) -> Array:
    begin, end = data_offsets
    kind = np.dtype(_DTYPES[dtype])
    if not 0 <= begin <= end <= len(data) or end - begin != math.prod(shape) * kind.itemsize:
        raise ValueError("a weight lies outside the file or does not fill its shape")
    return np.frombuffer(data[begin:end], dtype=kind).reshape(shape)
