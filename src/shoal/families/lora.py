"""LoRA adapters as PEFT writes them: what a folder says of itself, and its low-rank factors for a base's linears.

Follows Hu et al., arXiv:2106.09685, and Kalajdzievski, arXiv:2312.03732, for the scale of rslora. Knows files and
names; what a base's linears are called and how large they are is told to it.
"""

import math
import re
from pathlib import Path

import msgspec
import numpy as np

from shoal.families.lora_config import MAX_RANK as MAX_RANK
from shoal.families.lora_config import AdapterConfig as AdapterConfig
from shoal.families.lora_config import chosen
from shoal.families.lora_config import read_config as read_config
from shoal.families.lora_factors import Factors as Factors
from shoal.families.lora_factors import Sites as Sites
from shoal.families.lora_factors import as_sites, with_other_names
from shoal.families.weights import as_fp32, read_tensors
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.tensors import Array

WEIGHTS = "adapter_model.safetensors"
_DTYPES = ("F32", "F16", "BF16")
_MAX_HEADER_BYTES = 10_000_000
_NAME = re.compile(r"(?:base_model\.model\.)?([\w.-]{1,200}?)\.lora_([AB])(?:\.default)?\.weight", re.ASCII)
_DROPPED = re.compile(r"(?:0\.)?(?:[A-Za-z_]+\.){0,3}")
"""What a trained model's path may have before a base's: its own prefix, and sentence-transformers' wrapping."""

_IDLE = re.compile(r"(?:\w+\.)*pooler\.dense", re.ASCII)
"""What an encoder has and computes nothing with; adapters of "all linears" have factors for it."""


class _Pair(msgspec.Struct):
    """The tensors of one linear as they are found; `path` is what the trained model called it."""

    path: str
    a: Array | None = None
    b: Array | None = None


def read_adapter(folder: Path, sites: Sites) -> dict[str, Factors]:
    """The factors of each linear that the adapter changes, under the names that `sites` has.

    Those are as `Checkpoint` names weights, without `.weight`: encoder.layer.0.attention.self.query. Raises
    ModelLoadFailed, with the name of the tensor, for whatever is not this base's or cannot be computed.
    """
    config = read_config(folder)
    if not (folder / WEIGHTS).is_file():
        is_pickled = (folder / "adapter_model.bin").exists()
        why = "adapter_model.bin is a pickle, which is never read" if is_pickled else "the folder has none"
        raise ModelLoadFailed(f"an adapter's factors are read from {WEIGHTS}; {why}")
    known = with_other_names(sites)
    pairs: dict[str, _Pair] = {}
    for name, tensor in read_tensors(folder / WEIGHTS, _DTYPES, _MAX_HEADER_BYTES):
        _place(pairs, name, tensor, known)
    if not pairs:
        raise ModelLoadFailed(f"{WEIGHTS} holds no factors")
    return as_sites({site: _factors(config, pair, *known[site]) for site, pair in pairs.items()}, sites)


def _place(pairs: dict[str, _Pair], name: str, tensor: Array, sites: Sites) -> None:
    named = _NAME.fullmatch(name)
    if named is None:
        raise ModelLoadFailed(f"tensor {name[:250]!r} is no factor of a linear layer, and nothing else is taken")
    path, side = named.groups()
    site = _site(path, sites)
    if site is None and _IDLE.fullmatch(path):
        return
    if site is None:
        raise ModelLoadFailed(f"tensor {name!r}: the base has no linear layer of this name that can be adapted")
    pair = pairs.setdefault(site, _Pair(path))
    if pair.path != path or getattr(pair, side.lower()) is not None:
        raise ModelLoadFailed(f"tensor {name!r}: another one is there for the same layer, {pair.path!r}")
    setattr(pair, side.lower(), tensor)


def _site(path: str, sites: Sites) -> str | None:
    """The site that `path` means: of the same name, or of one that only a model's own prefix tells apart."""
    rest = path
    while rest not in sites and "." in rest:
        rest = rest.partition(".")[2]
    if rest in sites:
        return rest if _DROPPED.fullmatch(path.removesuffix(rest)) else None
    longer = [site for site in sites if site.endswith("." + path)]
    return longer[0] if len(longer) == 1 and _DROPPED.fullmatch(longer[0].removesuffix(path)) else None


def _factors(config: AdapterConfig, pair: _Pair, rows: int, columns: int) -> Factors:
    a, b = pair.a, pair.b
    if a is None or b is None:
        missing, there = ("A", "B") if a is None else ("B", "A")
        raise ModelLoadFailed(f"layer {pair.path!r} has lora_{there} and no lora_{missing}")
    if not config.is_target(pair.path):
        raise ModelLoadFailed(f"layer {pair.path!r} has factors, and target_modules does not name it")
    rank = chosen(config.rank_pattern, pair.path, config.rank)
    a, b = _checked(a, (rank, columns), pair.path, "A"), _checked(b, (rows, rank), pair.path, "B")
    alpha = chosen(config.alpha_pattern, pair.path, config.alpha)
    with np.errstate(over="ignore"):
        scaled = b * np.float32(alpha / (math.sqrt(rank) if config.rslora else rank))
    if not np.isfinite(scaled).all():
        raise ModelLoadFailed(f"lora_B of layer {pair.path!r} times its scale, alpha {alpha}, is not finite")
    return Factors(a, scaled)


def _checked(tensor: Array, shape: tuple[int, int], path: str, side: str) -> Array:
    """A copy in fp32, out of the file; not before its size is known to be right."""
    if tensor.shape != shape:
        raise ModelLoadFailed(
            f"lora_{side} of layer {path!r} has the shape {tensor.shape}; its rank and the base ask for {shape}"
        )
    copied = np.array(as_fp32(tensor))
    if not np.isfinite(copied).all():
        raise ModelLoadFailed(f"lora_{side} of layer {path!r} has values that are not finite")
    return copied
