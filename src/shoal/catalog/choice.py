"""Which files of a model's folder are taken into the store, and under which names. Pure: names in, names out.

Weights are `model.safetensors` or `model.onnx` there, whatever they were called. Pickles and code are never
taken, and a folder that has nothing else is refused with what to do about it.
"""

from collections.abc import Iterable
from pathlib import PurePosixPath

from shoal.protocol.errors import InvalidInput

_TEXTS = {".json", ".txt", ".model", ".jinja"}
_LEGAL = ("license", "notice", "copying")
_PICKLES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"}
_EXTERNAL = ("_data", ".data")
"""ONNX keeps weights over 2 GB in a file named like the model's with one of these at its end."""


def choose_files(names: Iterable[str]) -> dict[str, str]:
    """What the store calls a file → what the folder calls it. Names are posix paths below the folder.

    Raises InvalidInput where there are no weights that can be served, saying why.
    """
    paths = [PurePosixPath(name) for name in names]
    root = [path.name for path in paths if len(path.parts) == 1]
    chosen = {name: name for name in root if _is_text(name)}
    chosen |= {
        str(p): str(p) for p in paths if len(p.parts) == 2 and p.name == "config.json" and p.parts[0][0].isdigit()
    }
    return chosen | _weights(root, [str(path) for path in paths])


def _is_text(name: str) -> bool:
    is_legal = name.lower().startswith(_LEGAL) or name.lower() == "readme.md"
    return is_legal or (PurePosixPath(name).suffix in _TEXTS and not name.endswith(".index.json"))


def _weights(root: list[str], all_names: list[str]) -> dict[str, str]:
    """1. An adapter is no model. 2. safetensors on top, 3. else ONNX there or in onnx/, 4. else why not."""
    if "adapter_config.json" in root:  # 1
        raise InvalidInput(
            "this folder is a LoRA adapter, which is not served yet; merge it into its base model "
            "(peft: `merge_and_unload().save_pretrained(...)`) and add the result"
        )
    if tensors := [name for name in root if name.endswith(".safetensors")]:  # 2
        return {"model.safetensors": _the_one("model.safetensors", tensors)}
    for folder in ("", "onnx/"):  # 3
        if graphs := [
            n for n in all_names if n.endswith(".onnx") and n.rpartition("/")[0] + "/" == (folder or "/")
        ]:
            graph = _the_one(f"{folder}model.onnx", graphs)
            beside = [graph + end for end in _EXTERNAL if graph + end in all_names]
            return {"model.onnx": graph} | {name.removeprefix(folder): name for name in beside}
    pickles = sorted(name for name in root if PurePosixPath(name).suffix in _PICKLES)  # 4
    if pickles:
        raise InvalidInput(
            f"the only weights here are pickles ({', '.join(pickles[:3])}), which can run code when opened; "
            "save the model as safetensors (`model.save_pretrained(folder)` in transformers) and add that"
        )
    raise InvalidInput("no weights here: a model's folder has a model.safetensors or a model.onnx")


def _the_one(usual: str, found: list[str]) -> str:
    if usual in found:
        return usual
    if len(found) == 1:
        return found[0]
    raise InvalidInput(
        f"several files with weights ({', '.join(sorted(found)[:3])}, …) and no {usual}: weights in shards "
        "are not served; save the model as one file (`max_shard_size` in transformers), or leave only one"
    )
