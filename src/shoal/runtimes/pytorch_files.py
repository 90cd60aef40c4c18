"""What a folder may hold before PyTorch's libraries are let near it: no code of its own, no pickles, no class
that is not theirs. Reads JSON and names only, and imports none of them.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from shoal.catalog.known import is_own_code_replaced
from shoal.families.weights import read_json
from shoal.protocol.errors import ModelLoadFailed

_PICKLES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".h5", ".msgpack"}
_OWN = re.compile(
    r"sentence_transformers\.[\w.]*\.[A-Z]\w*|torch\.nn\.(modules\.\w+\.)?[A-Z]\w*|pylate\.models\.Dense\.Dense"
)
"""Classes that a configuration may name: the libraries' own. PyLate's is read as sentence-transformers' Dense."""


def check_files(folder: Path) -> None:
    """Raises ModelLoadFailed with the reason.

    1. Python code, or a configuration that asks for some, unless transformers has the same built in. 2. A module
    or activation that is not the libraries' own (older releases import whatever a local folder names). 3. Weights
    that exist only as a pickle.
    """
    if not is_own_code_replaced(str(read_json(folder / "config.json").get("model_type"))):  # 1
        _refuse_code(folder)
    for name in _classes(folder):  # 2
        if not _OWN.fullmatch(name):
            raise ModelLoadFailed(
                f"this model's files name {name}, a class that is not sentence-transformers' own"
            )
    for path in folder.rglob("*"):  # 3
        if path.suffix in _PICKLES and not any(path.parent.glob("*.safetensors")):
            raise ModelLoadFailed(
                f"the weights in {path.relative_to(folder)} are no safetensors; a pickle can run code when opened "
                "(`model.save_pretrained(folder)` in transformers writes safetensors)"
            )


def _refuse_code(folder: Path) -> None:
    if code := next(folder.rglob("*.py"), None):
        raise ModelLoadFailed(f"this model brings Python code of its own ({code.name}), which is never run here")
    for path in (folder / "config.json", folder / "tokenizer_config.json"):
        if path.is_file() and read_json(path).get("auto_map"):
            raise ModelLoadFailed(
                f"{path.name} asks for Python code of its own (auto_map), which is never run here"
            )


def _classes(folder: Path) -> Iterator[str]:
    """Every Python class that the files of sentence-transformers name, by its full name."""
    modules = _json(folder / "modules.json") if (folder / "modules.json").is_file() else []
    yield from (str(module.get("type")) for module in modules if isinstance(module, dict))
    for path in folder.rglob("*config*.json"):
        config = _json(path)
        if not isinstance(config, dict):
            continue
        saved = config.get("sentence_transformers")
        holders = [config, saved if isinstance(saved, dict) else {}]
        for key in ("activation_function", "activation_fn", "sbert_ce_default_activation_function"):
            # A name without a dot ("gelu") is looked up in a table.
            yield from (holder[key] for holder in holders if "." in str(holder.get(key, "")))
        types = config.get("types")  # of a Router's modules
        yield from map(str, types.values() if isinstance(types, dict) else ())


def _json(path: Path) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as e:
        raise ModelLoadFailed(f"cannot read {path.name}: {e}") from e
