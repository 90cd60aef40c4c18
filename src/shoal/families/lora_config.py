"""adapter_config.json of a PEFT adapter: what is taken of it, and what is refused since it computes more.

Pure reading. What a setting does that is not known here nobody can tell, so that it is refused by its name.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from shoal.families.weights import read_json
from shoal.protocol.errors import ModelLoadFailed, over_limit

CONFIG = "adapter_config.json"
MAX_RANK = 256
"""Beyond it, factors are no longer small beside the layers they change."""
_MAX_BYTES = 1 << 20
_MAX_KEYS = 1024
_MAX_OPEN = 16

_ADVICE = {
    "modules_to_save": "whole layers beside the factors (task_type SEQ_CLS saves the head so: leave it out and "
    "put the head among target_modules, or serve the merged model)",
    "use_dora": "DoRA's magnitudes",
    "lora_bias": "biases beside the factors",
    "layer_replication": "a base with layers that are repeated",
    "trainable_token_indices": "rows of the embedding table that were trained",
    "target_parameters": "factors of bare parameters",
    "alora_invocation_tokens": "factors that begin to count at a token",
    "use_qalora": "pooled inputs",
    "use_bdlora": "factors in blocks",
    "arrow_config": "a router between adapters",
    "kasa_config": "singular values between the factors",
    "monteclora_config": "factors that are drawn",
}
"""Settings of PEFT with which more is computed than two factors, and what that is."""
_HARMLESS = {
    "peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "target_modules", "bias",
    "base_model_name_or_path", "init_lora_weights", "task_type", "auto_mapping", "peft_version", "revision",
    "inference_mode", "exclude_modules", "lora_dropout", "fan_in_fan_out", "layers_to_transform", "layers_pattern",
    "megatron_config", "megatron_core", "loftq_config", "eva_config", "corda_config", "lora_ga_config",
    "velora_config", "qalora_group_size", "runtime_config", "ensure_weight_tying",
}  # fmt: skip
"""Read here, or of no account once the factors are trained."""
_BASE_KEPT = ("gaussian", "eva", "orthogonal", "mica")
"""Beginnings that leave the base's weights as they are; the others take their part out of them."""

_TOKEN = r"(?:[\w-]|\\?\.|\\d|\[(?:\w(?:-\w)?)+\])"  # noqa: S105 - a part of a pattern
_PATTERN = re.compile(rf"\^?(?:{_TOKEN}[*+]?){{1,200}}\$?", re.ASCII)


Chosen = TypeVar("Chosen", int, float)


class AdapterConfig(msgspec.Struct, frozen=True):
    """`targets`: the names of linears, or a pattern of them, as the file has it ("all-linear" among those).
    The patterns' keys are checked: none takes long to be looked for."""

    rank: int
    alpha: float
    rslora: bool = False
    base: str = ""
    targets: tuple[str, ...] | str = ()
    rank_pattern: dict[str, int] = {}
    alpha_pattern: dict[str, float] = {}

    def is_target(self, path: str) -> bool:
        """Whether `targets` names this layer; a pattern is taken at its word, since the files say what it met."""
        if isinstance(self.targets, str):
            return True
        return any(path == name or path.endswith("." + name) for name in self.targets)


def chosen(patterns: Mapping[str, Chosen], path: str, default: Chosen) -> Chosen:
    """What the first pattern that meets `path`, whole or from a dot on, says of it."""
    for key, value in patterns.items():
        if _compiled(key).match(path):
            return value
    return default


def read_config(folder: Path) -> AdapterConfig:
    """Raises ModelLoadFailed with the reason where this is no LoRA that can be computed beside its base."""
    path = folder / CONFIG
    try:
        size = path.stat().st_size
    except OSError as e:
        raise ModelLoadFailed(f"cannot read {CONFIG}: {e.strerror}") from e
    if size > _MAX_BYTES:
        raise ModelLoadFailed(f"{CONFIG} has {size} bytes, over the limit of {_MAX_BYTES}")
    told = read_json(path)
    _refuse_others(told)
    base = told.get("base_model_name_or_path")
    ranks, alphas = _patterns(told, "rank_pattern"), _patterns(told, "alpha_pattern")
    return AdapterConfig(
        rank=_rank("r", told.get("r")),
        alpha=_number("lora_alpha", told.get("lora_alpha")),
        rslora=_flag(told, "use_rslora"),
        base=base if isinstance(base, str) else "",
        targets=_targets(told.get("target_modules")),
        rank_pattern={key: _rank(f"rank_pattern[{key!r}]", value) for key, value in ranks},
        alpha_pattern={key: _number(f"alpha_pattern[{key!r}]", value) for key, value in alphas},
    )


def _refuse_others(told: Mapping[str, Any]) -> None:
    kind = told.get("peft_type")
    if kind != "LORA":
        raise ModelLoadFailed(f"adapters are of the type LORA; {CONFIG} says {kind!r:.80}")
    if (bias := told.get("bias", "none")) != "none":
        raise ModelLoadFailed(f"{CONFIG}: bias is {bias!r:.80}; only 'none' is served: biases belong to the base")
    for name, value in told.items():
        if name in _ADVICE and value not in (None, False, [], {}, ""):
            raise ModelLoadFailed(f"{CONFIG}: {name} asks for {_ADVICE[name]}; that is not served")
        if name not in _ADVICE and name not in _HARMLESS and value not in (None, False, [], {}, ""):
            raise ModelLoadFailed(f"{CONFIG}: {name[:80]!r} is not known here and might change what is computed")
    start = told.get("init_lora_weights", True)
    if not (start is None or isinstance(start, bool) or start in _BASE_KEPT):
        raise ModelLoadFailed(
            f"{CONFIG}: init_lora_weights {start!r:.80} changed the base's own weights; save the adapter with "
            "PEFT's path_initial_model_for_weight_conversion"
        )


def _rank(what: str, value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ModelLoadFailed(f"{CONFIG}: {what} is {value!r:.80}, not a whole number from 1 to {MAX_RANK}")
    if value > MAX_RANK:
        seen = min(value, 10**12)
        raise over_limit(ModelLoadFailed, f"{CONFIG}: {what}", seen=seen, limit=MAX_RANK, setting="MAX_RANK")
    return value


def _number(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelLoadFailed(f"{CONFIG}: {what} is {value!r:.80}, not a number")
    if not abs(value) <= 1e6:  # nor for NaN
        raise ModelLoadFailed(f"{CONFIG}: {what} is {value!r:.80}, beyond ±1,000,000")
    return float(value)


def _flag(told: Mapping[str, Any], name: str) -> bool:
    value = told.get(name)
    if not (value is None or isinstance(value, bool)):
        raise ModelLoadFailed(f"{CONFIG}: {name} is {value!r:.80}, neither true nor false")
    return bool(value)


def _targets(value: Any) -> tuple[str, ...] | str:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list) and value and all(isinstance(name, str) and name for name in value):
        return tuple(value)
    raise ModelLoadFailed(f"{CONFIG}: target_modules names no layers")


def _patterns(told: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    """Regular expressions by their format; here only those that nobody can make slow."""
    value = told.get(name)
    if value is not None and not isinstance(value, dict):
        raise ModelLoadFailed(f"{CONFIG}: {name} is not a table of names")
    patterns = list((value or {}).items())
    if len(patterns) > _MAX_KEYS or sum("*" in key or "+" in key for key, _ in patterns) > _MAX_OPEN:
        raise ModelLoadFailed(f"{CONFIG}: {name} has over {_MAX_KEYS} names, or over {_MAX_OPEN} with * or +")
    for key, _ in patterns:
        if not _is_pattern(key):
            raise ModelLoadFailed(
                f"{CONFIG}: {name} has the key {key[:80]!r}; names of layers are understood, with `.`, `\\d` and "
                "`[…]` and at most two `*` or `+`; name the layers one by one"
            )
    return patterns


def _is_pattern(key: str) -> bool:
    if not _PATTERN.fullmatch(key) or key.count("*") + key.count("+") > 2:
        return False
    try:
        _compiled(key)
    except re.error:  # a range such as [z-a]
        return False
    return True


@lru_cache(maxsize=_MAX_KEYS)
def _compiled(key: str) -> re.Pattern[str]:
    return re.compile(rf"(?:.*\.)?(?:{key})$")
