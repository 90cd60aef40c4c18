"""Which files of a model's folder are taken into the store, and under which names. Pure: names and sizes in, names
out.

Weights are `model.safetensors`, its shards with their index, or `model.onnx` there, whatever they were called. Of
a LoRA adapter its two files are taken. Pickles and code are never taken, and a folder that has nothing else is
refused with what to do about it.
"""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from shoal.families.lora import WEIGHTS
from shoal.families.lora_config import CONFIG
from shoal.protocol.errors import InvalidInput

_TEXTS = {".json", ".txt", ".model", ".jinja"}
_LEGAL = ("license", "notice", "copying")
_OTHERS = ("readme.md", "artifact.metadata")
_PICKLES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"}
_EXTERNAL = ("_data", ".data")
"""ONNX keeps weights over 2 GB in a file named like the model's with one of these at its end."""
_MODULE = re.compile(r"(?:\d+|(?:query|document)_\d+)_\w+")
_ROUTED = re.compile(r"document_0_\w*Transformer")
_SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
_INDEX = "model.safetensors.index.json"
_MOST_TEXT_BYTES = 100_000_000
"""The longest tokenizer.json that anyone published has a third of this."""
_MOST_NAME_BYTES = 200


def choose_files(sizes: Mapping[str, int]) -> dict[str, str]:
    """What the store calls a file → what the folder calls it. `sizes` are bytes by posix path below the folder.

    A name that no publisher gives (not printable, or as long as some disks take none) is passed over. Raises
    InvalidInput where there are no weights that can be served, or a text is none by its size, saying why.
    """
    paths = [PurePosixPath(name) for name in sizes if name.isprintable() and _is_short(name)]
    root = {path.name: path.name for path in paths if len(path.parts) == 1}
    if CONFIG in root:
        return _of_adapter(root, sizes)
    if "router_config.json" in root:
        root = _routed(paths) | root
    chosen = {target: name for target, name in root.items() if _is_text(target)}
    chosen |= {
        str(p): str(p)
        for p in paths
        if len(p.parts) == 2 and p.name in ("config.json", "model.safetensors") and _MODULE.fullmatch(p.parts[0])
    }
    for target in [target for target in chosen if _ROUTED.fullmatch(PurePosixPath(target).parts[0])]:
        del chosen[target]  # it stands on top
    for name in chosen.values():
        if sizes[name] > _MOST_TEXT_BYTES and not name.endswith(".safetensors"):
            raise InvalidInput(
                f"{name} has {sizes[name]} bytes; what describes a model has at most {_MOST_TEXT_BYTES}. If it is "
                "none of the model's files, take it away"
            )
    return chosen | _weights(root, [str(path) for path in paths])


def _is_short(name: str) -> bool:
    return all(len(part.encode()) <= _MOST_NAME_BYTES for part in name.split("/"))


def _routed(paths: list[PurePosixPath]) -> dict[str, str]:
    """Of a Router's folders the encoder's own, as if its files stood on top."""
    inside = (path for path in paths if len(path.parts) == 2 and _ROUTED.fullmatch(path.parts[0]))
    return {path.name: str(path) for path in inside}


def _is_told(name: str) -> bool:
    """Words for people."""
    return name.lower().startswith(_LEGAL) or name.lower() in _OTHERS


def _is_text(name: str) -> bool:
    return _is_told(name) or (PurePosixPath(name).suffix in _TEXTS and not name.endswith(".index.json"))


def _weights(root: dict[str, str], all_names: list[str]) -> dict[str, str]:
    """1. safetensors on top, 2. else ONNX there or in onnx/, 3. else why not."""
    if tensors := [name for name in root if name.endswith(".safetensors")]:  # 1
        shards = [name for name in tensors if _SHARD.fullmatch(name)]
        if _INDEX in root and shards and "model.safetensors" not in tensors:
            return {name: root[name] for name in (_INDEX, *shards)}
        return {"model.safetensors": root[_the_one("model.safetensors", tensors)]}
    for folder in ("", "onnx/"):  # 2
        if graphs := [
            n for n in all_names if n.endswith(".onnx") and n.rpartition("/")[0] + "/" == (folder or "/")
        ]:
            graph = _the_one(f"{folder}model.onnx", graphs)
            beside = [graph + end for end in _EXTERNAL if graph + end in all_names]
            return {"model.onnx": graph} | {name.removeprefix(folder): name for name in beside}
    _refuse_pickles(root)  # 3
    raise InvalidInput("no weights here: a model's folder has a model.safetensors or a model.onnx")


def _of_adapter(root: dict[str, str], sizes: Mapping[str, int]) -> dict[str, str]:
    """Whatever else is there (a tokenizer, the states of a training) belongs to its base or to nobody."""
    if WEIGHTS not in root:
        _refuse_pickles({name: path for name, path in root.items() if name.startswith("adapter_")})
        raise InvalidInput(f"this is a LoRA adapter ({CONFIG}) without its weights ({WEIGHTS})")
    texts = [name for name in root if name == CONFIG or _is_told(name)]
    for name in texts:
        if sizes[name] > _MOST_TEXT_BYTES:
            raise InvalidInput(
                f"{name} has {sizes[name]} bytes; what describes an adapter has at most {_MOST_TEXT_BYTES}"
            )
    return {name: name for name in (*texts, WEIGHTS)}


def _refuse_pickles(root: dict[str, str]) -> None:
    pickles = sorted(name for name in root if PurePosixPath(name).suffix in _PICKLES)
    if pickles:
        raise InvalidInput(
            f"the only weights here are pickles ({', '.join(pickles[:3])}), which can run code when opened; "
            "save the model as safetensors (`model.save_pretrained(folder)` in transformers) and add that"
        )


def _the_one(usual: str, found: list[str]) -> str:
    if usual in found:
        return usual
    if len(found) == 1 and not _SHARD.fullmatch(found[0]):
        return found[0]
    raise InvalidInput(
        f"files with weights ({', '.join(sorted(found)[:3])}) and no {usual} nor {_INDEX}: which of them make the "
        "model cannot be told; save it again (`model.save_pretrained(folder)` in transformers), or leave one"
    )
