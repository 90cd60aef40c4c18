"""Whether a file of weights is what its name says, told from its first bytes. Reads no tensor."""

from pathlib import Path

import msgspec

from shoal.protocol.errors import InvalidInput

_MAX_HEADER_BYTES = 100_000_000
_POINTER = b"version https://git-lfs"


class _Tensor(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def check_weights(path: Path) -> None:
    """Raises InvalidInput for a pointer left by git without LFS, a file cut short, or something else."""
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
