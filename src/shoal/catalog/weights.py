"""Whether the files of weights are what their names say, told from their first bytes. Reads no tensor."""

from pathlib import Path

import msgspec

from shoal.catalog.configs import read
from shoal.protocol.errors import InvalidInput

_MAX_HEADER_BYTES = 100_000_000
_POINTER = b"version https://git-lfs"


class _Tensor(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def check_weights(folder: Path) -> None:
    """Raises InvalidInput for a pointer left by git without LFS, a file cut short, a shard that is missing, or
    something else than weights. Those of modules in folders of their own are looked at too.
    """
    for path in _files(folder):
        _check_file(path)


def _files(folder: Path) -> list[Path]:
    inside = sorted(folder.glob("*/model.safetensors"))
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        has_onnx = (folder / "model.onnx").is_file()
        return [folder / ("model.onnx" if has_onnx else "model.safetensors"), *inside]
    shards = sorted(set(read(folder, index.name, _Index).weight_map.values()))  # type: ignore[union-attr]  # it is there
    missing = [name for name in shards if "/" in name or not (folder / name).is_file()]
    if missing or not shards:
        raise InvalidInput(f"{index.name} names {', '.join(missing[:3]) or 'no file'}, which is not here")
    return [*(folder / name for name in shards), *inside]


def _check_file(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(len(_POINTER))
    if start == _POINTER:
        raise InvalidInput(
            f"{path.name} is a Git LFS pointer, not the weights: run `git lfs pull` where it came from"
        )
    if path.suffix == ".safetensors":
        _check_safetensors(path)
    elif not start or start[:1] != b"\x08":
        # An ONNX file is a protobuf whose first field, the IR version, is written first by every exporter.
        raise InvalidInput(f"{path.name} is not an ONNX model")


def _check_safetensors(path: Path) -> None:
    """Format: u64 length, a JSON header of that length, then the tensors' bytes and nothing after them."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(size - 8, _MAX_HEADER_BYTES):
            raise InvalidInput(f"{path.name} is not a safetensors file")
        header = file.read(length)
    try:
        entries = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        entries.pop("__metadata__", None)
        ends = [msgspec.json.decode(raw, type=_Tensor).data_offsets[1] for raw in entries.values()]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise InvalidInput(f"{path.name} has a broken header: {e}") from e
    expected = 8 + length + max(ends, default=0)
    if size != expected:
        raise InvalidInput(f"{path.name} has {size} bytes where its header says {expected}: it was cut short")
