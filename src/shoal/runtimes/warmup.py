"""The first forward pass, made while a model loads: it compiles kernels and shows whether the facts are right."""

import numpy as np

from shoal.protocol.errors import ModelLoadFailed, ShoalError
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item
from shoal.runtimes import Runtime


def warm_up(runtime: Runtime, facts: Facts) -> None:
    """Raises ModelLoadFailed where the pass fails or gives something else than the facts say."""
    name, shape = ("score", ()) if "score" in facts.tasks else ("dense", (facts.dims,))
    (prepared,) = runtime.prepare([Item("warm", pair="up" if name == "score" else None)])
    if isinstance(prepared, ShoalError):
        raise ModelLoadFailed(f"the model cannot read even one word: {prepared.message}")
    (row,) = runtime.run([prepared], 0).rows
    found = row[name]
    if found.shape != shape or found.dtype != np.float32:
        raise ModelLoadFailed(f"the model gives a {name} of shape {found.shape}, its facts say {shape}")
