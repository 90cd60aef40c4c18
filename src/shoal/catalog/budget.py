"""How much disk all models together may take, and which of them go when another needs room. Pure but for
reading the setting.
"""

import os
import re
from collections.abc import Mapping

from shoal.catalog import Model
from shoal.protocol import sizes
from shoal.protocol.errors import InvalidInput, ResourceExhausted

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def disk_budget(said: str = "") -> int:
    """Bytes, from `said` or $SHOAL_DISK, like "20GB"; 0 where neither says any. Raises InvalidInput."""
    text = said or os.environ.get("SHOAL_DISK", "")
    if not text:
        return 0
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?B?)\s*", text, re.IGNORECASE)
    unit = found and _UNITS.get(found[2].upper() + "B" * (len(found[2]) == 1 and found[2].upper() != "B"))
    if not found or not unit or not float(found[1]) or (unit == 1 and "B" not in found[2].upper()):
        raise InvalidInput(f"a disk budget is a size like 20GB or 800MB, not {text!r}", setting="SHOAL_DISK")
    return int(float(found[1]) * unit)


def to_evict(
    models: Mapping[str, Model], used_at: Mapping[str, float], size_bytes: int, budget: int, *, may_evict: bool
) -> list[str]:
    """The models to remove so that `size_bytes` more fit in `budget`, least recently used first; none if they
    fit already. An artifact that several models share goes with the last of them; a model with adapters stays.

    Raises ResourceExhausted, naming sizes and setting, where they cannot be made to fit, or may not.
    """
    taken = taken_by(models)
    if taken + size_bytes <= budget:
        return []
    going: list[str] = []
    loose = sorted((n for n, m in models.items() if not m.keep), key=lambda name: (used_at.get(name, 0.0), name))
    for name in loose if may_evict else ():
        if any(m.card.base == name and n not in going for n, m in models.items()):
            continue
        going.append(name)
        left = {m.digest: m.size_bytes for n, m in models.items() if n not in going}
        if sum(left.values()) + size_bytes <= budget:
            return going
    raise ResourceExhausted(_refusal(taken, size_bytes, budget, may_evict), **_sizes(taken, size_bytes, budget))


def taken_by(models: Mapping[str, Model]) -> int:
    """Bytes. What several share counts once."""
    return sum({model.digest: model.size_bytes for model in models.values()}.values())


def _refusal(taken: int, size_bytes: int, budget: int, may_evict: bool) -> str:
    advice = "what is left is kept (`--keep`)" if may_evict else "`--evict` removes those used longest ago"
    needed, others, most = map(sizes.in_words, (size_bytes, taken, budget))
    return (
        f"this model needs {needed} beside {others} of others, over the budget of {most}; "
        f"{advice}, `shoal rm NAME` one of your choice, and SHOAL_DISK or `--disk` sets the budget"
    )


def _sizes(taken: int, size_bytes: int, budget: int) -> dict[str, object]:
    return {"limit": budget, "size": size_bytes, "taken": taken, "setting": "SHOAL_DISK"}
