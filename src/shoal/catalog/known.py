"""Which kinds of model can be computed, by `model_type` of config.json, and what that word implies.

The names are transformers'. A kind belongs to the family whose file says so; the rest are PyTorch's.
"""

import functools

from shoal.families import Family, all_families

ON_PYTORCH = {
    "albert", "big_bird", "deberta", "deberta-v2", "electra", "ernie", "eurobert", "gemma2", "gemma3_text",
    "llama", "longformer", "megatron-bert", "mistral", "mt5", "qwen2", "qwen3", "rembert", "roformer", "t5",
    "umt5", "xlm-roberta-xl",
}  # fmt: skip
"""Kinds without a family here, which transformers computes: their family has its name. Each is held to
sentence-transformers by a test, also alone against batched; where padding shows in the numbers it is not here.
"""

DECODERS = {"gemma2", "llama", "mistral", "qwen2", "qwen3"}
"""Those of them that can also say the next word, and by it score a pair."""

_OFFSET_ON_PYTORCH = {"longformer", "xlm-roberta-xl"}


@functools.cache
def _by_kind() -> dict[str, tuple[str, Family]]:
    return {kind: (name, family) for name, family in all_families().items() for kind in family.model_types}


def built_in() -> list[str]:
    """The kinds that need no PyTorch, by name."""
    return sorted(_by_kind())


def family_of(kind: str) -> str | None:
    """The family that computes a kind; None where there is none. On PyTorch it has the kind's own name."""
    if kind in _by_kind():
        return _by_kind()[kind][0]
    return kind if kind in ON_PYTORCH else None


def has_offset_positions(kind: str) -> bool:
    """Whether the first position is the padding's id plus one, so that many rows of the table are never used."""
    return kind in _OFFSET_ON_PYTORCH or (kind in _by_kind() and _by_kind()[kind][1].offset_positions)


def is_own_code_replaced(kind: str) -> bool:
    """Whether such a model's own code, which is not run, is not needed either."""
    return kind in _by_kind() and kind in _by_kind()[kind][1].replaces_code
