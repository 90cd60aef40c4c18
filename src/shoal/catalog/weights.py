"""Whether the files of weights are what their names say, told from their first bytes, and whether what is in them
makes the model that its other files describe. Nothing is computed.
"""

from itertools import pairwise
from pathlib import Path

import msgspec

from shoal.catalog.configs import read
from shoal.families import all_families
from shoal.families.shapes import check_network, check_reader
from shoal.protocol.errors import InvalidInput, ModelLoadFailed
from shoal.protocol.facts import Facts

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
        check_file(path)


def check_model(folder: Path, facts: Facts) -> None:
    """Raises InvalidInput for a tokenizer that reads nothing, and for weights that are missing, do not fit each
    other, or have no rows for what would be looked up. What a graph or PyTorch make of theirs shows at a load.
    """
    family = all_families().get(facts.family)
    try:
        check_reader(folder, facts)
        if family is not None and facts.files == "safetensors":
            check_network(family, folder, facts)
    except ModelLoadFailed as e:
        raise InvalidInput(f"config.json, tokenizer.json and the weights do not make a model: {e.message}") from e


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


def check_file(path: Path) -> None:
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
        places = sorted(msgspec.json.decode(raw, type=_Tensor).data_offsets for raw in entries.values())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise InvalidInput(f"{path.name} has a broken header: {e}") from e
    if any(begin != before for (_, before), (begin, _) in pairwise([(0, 0), *places])):
        raise InvalidInput(f"{path.name} has weights that lie over each other, or with holes between them")
    expected = 8 + length + max((end for _, end in places), default=0)
    if size != expected:
        raise InvalidInput(f"{path.name} has {size} bytes where its header says {expected}: it was cut short")
