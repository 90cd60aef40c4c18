"""LoRA adapters with random factors for any model folder, in the files that PEFT writes, made without PyTorch.

For tests and benches: what they change means nothing, but each changes it differently.
"""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file


def write_adapter(
    folder: Path,
    base: Path,
    *,
    targets: Sequence[str] | str = "all-layers",
    rank: int = 8,
    alpha: float = 16.0,
    seed: int = 0,
    strength: float = 0.3,
    **config: object,
) -> Path:
    """`folder` with adapter_config.json and adapter_model.safetensors for the model in the folder `base`.

    `targets` are the ends of names of linears ("query", "output.dense"); "all-layers" means each in a numbered
    layer, as dense encoders have. `strength` is about how much is added, as a part of a layer's input. `config`
    overrides what adapter_config.json says: use_rslora=True, say. Raises ValueError where nothing is meant.
    """
    random = np.random.default_rng(seed)
    sites = {name: shape for name, shape in linears(base) if _is_target(name, targets)}
    if not sites:
        raise ValueError(f"{base} has no linear layer among {targets}")
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    tensors: dict[str, NDArray[np.float32]] = {}
    for name, (rows, columns) in sites.items():
        a = random.standard_normal((rank, columns)) / math.sqrt(columns)
        b = random.standard_normal((rows, rank)) * strength / (scale * math.sqrt(rank))
        tensors[f"base_model.model.{name}.lora_A.weight"] = a.astype(np.float32)
        tensors[f"base_model.model.{name}.lora_B.weight"] = b.astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    said: dict[str, object] = {
        "peft_type": "LORA", "task_type": None, "base_model_name_or_path": base.name, "r": rank,
        "lora_alpha": alpha, "lora_dropout": 0.0, "target_modules": sorted(map(_short, sites)), "bias": "none",
        "use_rslora": False, "modules_to_save": None, "init_lora_weights": True, "fan_in_fan_out": False,
        "rank_pattern": {}, "alpha_pattern": {}, "inference_mode": True,
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(said | config, indent=2))
    return folder


def linears(base: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Name, without `.weight`, and (out, in) of every matrix that is no embedding table, as the files call it."""
    for path in sorted(base.glob("*.safetensors")):
        with safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118 - this is no mapping
                shape = tuple(file.get_slice(name).get_shape())
                if name.endswith(".weight") and len(shape) == 2 and "embedding" not in name:
                    yield name.removesuffix(".weight"), shape


def _is_target(name: str, targets: Sequence[str] | str) -> bool:
    if targets == "all-layers":
        return any(part.isdecimal() for part in name.split("."))
    return any(name == target or name.endswith("." + target) for target in targets)


def _short(name: str) -> str:
    """From its layer's number on, so that it is found whatever the model's own prefix is."""
    parts = name.split(".")
    numbers = [place for place, part in enumerate(parts) if part.isdecimal()]
    return ".".join(parts[numbers[-1] :]) if numbers else name
