"""The first forward pass, made while a model loads: it compiles kernels and shows whether the facts are right."""

import numpy as np

from shoal.protocol.errors import ModelLoadFailed, ShoalError
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item
from shoal.runtimes import Prepared, Runtime


def warm_up(runtime: Runtime, facts: Facts) -> None:
    """Raises ModelLoadFailed where the pass fails or gives something else than the facts say."""
    (prepared,) = runtime.prepare([Item("warm", pair="up" if facts.reads_pairs else None, kinds=facts.kinds)])
    if isinstance(prepared, ShoalError):
        raise ModelLoadFailed(f"the model cannot read even one word: {prepared.message}")
    assert isinstance(prepared, Prepared), "there is something to compute"
    (row,) = runtime.run([prepared], 0).rows
    for name, shape in _expected(facts, prepared).items():
        found = row[name]
        if found.shape != shape or found.dtype != np.float32:
            raise ModelLoadFailed(f"the model gives a {name} of shape {found.shape}, its facts say {shape}")


def _expected(facts: Facts, prepared: Prepared) -> dict[str, tuple[int, ...]]:
    """The shapes that are known beforehand: how many words a sparse vector has is not."""
    if facts.reads_pairs:
        return {"score": (len(facts.labels),) if len(facts.labels) > 1 else ()}
    shapes: dict[str, tuple[int, ...]] = {"dense": (facts.dims,)} if "dense" in facts.kinds else {}
    if facts.multivector is not None and "multivector" in facts.kinds:
        tokens = prepared.tokens if prepared.kept is None else len(prepared.kept)
        shapes["multivector"] = (tokens, facts.multivector.dims)
    return shapes
